#!/bin/sh
# Makes the certificates of these tests anew: they hold for a hundred years, but for the one that never did.
# The keys of the two roots are thrown away, so nothing else can be signed with them.
set -eu
cd "$(dirname "$0")"
trap 'rm -f ./*.csr ca.cnf index.txt* serial.txt* [0-9A-F][0-9A-F]*.pem root.key stranger.key' EXIT
ec="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
for root in root stranger; do
    openssl req -x509 $ec -days 36500 -subj "/CN=everloop test $root" -keyout $root.key -out $root.pem \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
done
openssl req -new $ec -subj /CN=server -keyout server.key -out server.csr
# NAME SUBJECT-ALTERNATIVE-NAME FIRST-DAY LAST-DAY; only `openssl ca` takes both days, and it wants its books.
sign() {
    : >index.txt
    cat >ca.cnf <<END
[ca]
default_ca = it
[it]
database = index.txt
serial = serial.txt
new_certs_dir = .
default_md = sha256
policy = any
[any]
commonName = supplied
[server]
subjectAltName = $2
extendedKeyUsage = serverAuth
END
    openssl ca -batch -notext -rand_serial -config ca.cnf -extensions server -cert root.pem -keyfile root.key \
        -in server.csr -out $1.pem -startdate $3 -enddate $4
}
sign good IP:127.0.0.1,DNS:localhost 20200101000000Z 21200101000000Z
sign elsewhere DNS:elsewhere.example 20200101000000Z 21200101000000Z
sign expired IP:127.0.0.1,DNS:localhost 20200101000000Z 20200102000000Z
