"""A real SMTP server for tests: aiosmtpd on a free port of loopback, until standard input ends.

smtp.py MODE CERTIFICATE KEY [EXCLUDED_MECHANISM]
MODE: `plain` (no TLS, no login), `starttls` or `tls` (both with the login `me` / `hunter-22-secret`).
stdout: one JSON line with the port, then one for each mail.
"""

import asyncio
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword


def write(line):
    print(json.dumps(line), flush=True)


class Handler:
    async def handle_DATA(self, server, session, envelope):
        sealed = server.transport.get_extra_info("ssl_object")
        write({
            "tls": sealed.version() if sealed else None,
            "user": session.auth_data.login.decode() if session.authenticated else None,
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "mail": envelope.content.decode("ascii"),
        })
        return "250 taken"


def authenticate(server, session, envelope, mechanism, data):
    known = isinstance(data, LoginPassword) and (data.login, data.password) == (b"me", b"hunter-22-secret")
    return AuthResult(success=known, handled=False, auth_data=data)


async def serve(mode, certificate, key, excluded):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    login = mode != "plain"
    options = {"authenticator": authenticate, "auth_required": True, "auth_exclude_mechanism": excluded} if login else {}

    def protocol():
        return SMTP(
            Handler(),
            hostname="mail.example",
            tls_context=context if mode == "starttls" else None,
            require_starttls=mode == "starttls",
            # With TLS from the first byte the class does not see that there is any.
            auth_require_tls=mode == "starttls",
            **options,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=context if mode == "tls" else None)
    write({"port": server.sockets[0].getsockname()[1]})
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    mode, certificate, key, *excluded = sys.argv[1:]
    asyncio.run(serve(mode, certificate, key, excluded))
