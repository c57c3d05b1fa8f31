//! The shapes of secrets, as data: what a key of a vendor begins with, of which characters it is
//! made and how long it is. Facts of the vendors' documents; a new vendor is a new row, with a line
//! in `samples.txt`.

/// Characters that a secret is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// Digits and the letters `a` to `f`.
    Hex,
    /// Capital letters and digits.
    Upper,
    /// Letters and digits, no sign.
    Word,
    /// Letters, digits, `_` and `-`.
    Url,
    /// The same with points between them.
    Dotted,
    /// Letters, digits, `+`, `/` and `=`.
    Base64,
    /// The characters of Base64 in an address, escaped or not.
    Escaped,
}

impl Alphabet {
    pub(super) fn has(self, byte: u8) -> bool {
        let word = byte.is_ascii_alphanumeric();
        match self {
            Alphabet::Hex => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            Alphabet::Upper => byte.is_ascii_digit() || byte.is_ascii_uppercase(),
            Alphabet::Word => word,
            Alphabet::Url => word || b"_-".contains(&byte),
            Alphabet::Dotted => word || b"_-.".contains(&byte),
            Alphabet::Base64 => word || b"+/=".contains(&byte),
            Alphabet::Escaped => word || b"%/+=_-".contains(&byte),
        }
    }
}

/// What follows the beginning of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// So many characters of an alphabet, at least and at most; a longer run is something else.
    Run(Alphabet, usize, usize),
    /// The same, with a digit among them: words of a language have none.
    Mixed(Alphabet, usize, usize),
    /// Three parts with points between them, the second of which is JSON as well.
    Jwt,
    /// All up to the end of the block.
    Pem,
    /// The password in an address, up to its host.
    UrlPassword,
    /// A value behind a name: `=` or `:`, in quotes or not, at least so long, with a digit.
    Value(usize),
    /// The second part of a bot's token, behind its number.
    BotToken,
    /// The second part of a client's secret, behind three characters.
    ClientSecret,
}

/// One kind of secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// In its replacement.
    pub(super) name: &'static str,
    pub(super) begin: &'static str,
    pub(super) rest: Rest,
}

const fn run(name: &'static str, begin: &'static str, alphabet: Alphabet, (least, most): (usize, usize)) -> Shape {
    Shape { name, begin, rest: Rest::Run(alphabet, least, most) }
}

const fn mixed(name: &'static str, begin: &'static str, alphabet: Alphabet, (least, most): (usize, usize)) -> Shape {
    Shape { name, begin, rest: Rest::Mixed(alphabet, least, most) }
}

const fn other(name: &'static str, begin: &'static str, rest: Rest) -> Shape {
    Shape { name, begin, rest }
}

/// No secret here is longer, except blocks.
pub(super) const LONGEST: usize = 4096;

use Alphabet::{Base64, Dotted, Escaped, Hex, Upper, Url, Word};

pub(super) const SHAPES: &[Shape] = &[
    // Models.
    run("anthropic key", "sk-ant-", Url, (20, LONGEST)),
    run("openai key", "sk-proj-", Url, (20, LONGEST)),
    run("openai key", "sk-svcacct-", Url, (20, LONGEST)),
    run("openai key", "sk-admin-", Url, (20, LONGEST)),
    run("openai key", "sess-", Word, (40, 48)),
    run("openrouter key", "sk-or-v1-", Hex, (48, 80)),
    mixed("api key", "sk-", Word, (32, 128)),
    run("google key", "AIza", Url, (35, 35)),
    run("hugging face token", "hf_", Word, (34, 40)),
    run("replicate token", "r8_", Word, (37, 40)),
    run("groq key", "gsk_", Word, (40, 64)),
    run("xai key", "xai-", Word, (60, 100)),
    run("perplexity key", "pplx-", Word, (40, 64)),
    mixed("tavily key", "tvly-", Url, (24, 64)),
    run("elevenlabs key", "sk_", Hex, (48, 48)),
    // Clouds.
    run("aws key", "AKIA", Upper, (16, 16)),
    run("aws key", "ASIA", Upper, (16, 16)),
    run("aws key", "ABIA", Upper, (16, 16)),
    run("google token", "ya29.", Url, (20, LONGEST)),
    run("google secret", "GOCSPX-", Url, (28, 28)),
    run("google token", "1//0", Url, (30, 200)),
    run("azure key", "AccountKey=", Base64, (86, 88)),
    run("azure key", "SharedAccessKey=", Base64, (43, 88)),
    run("azure signature", "?sig=", Escaped, (40, 120)),
    run("azure signature", "&sig=", Escaped, (40, 120)),
    other("azure secret", "8Q~", Rest::ClientSecret),
    other("azure secret", "7Q~", Rest::ClientSecret),
    run("digitalocean token", "dop_v1_", Hex, (64, 64)),
    run("digitalocean token", "doo_v1_", Hex, (64, 64)),
    run("digitalocean token", "dor_v1_", Hex, (64, 64)),
    run("heroku key", "HRKU-", Url, (30, 80)),
    run("fly token", "fo1_", Url, (40, LONGEST)),
    run("fly token", "fm2_", Base64, (40, LONGEST)),
    run("databricks token", "dapi", Hex, (32, 34)),
    run("netlify token", "nfp_", Word, (36, 48)),
    run("supabase token", "sbp_", Hex, (40, 40)),
    run("pulumi token", "pul-", Hex, (40, 40)),
    run("planetscale token", "pscale_tkn_", Dotted, (32, 64)),
    run("planetscale password", "pscale_pw_", Dotted, (32, 64)),
    run("tailscale key", "tskey-", Url, (20, 80)),
    run("vault token", "hvs.", Url, (24, 300)),
    run("vault token", "hvb.", Url, (24, 300)),
    run("terraform token", ".atlasv1.", Url, (60, 80)),
    run("doppler token", "dp.pt.", Word, (40, 48)),
    // Code and packages.
    run("github token", "ghp_", Word, (36, 255)),
    run("github token", "gho_", Word, (36, 255)),
    run("github token", "ghu_", Word, (36, 255)),
    run("github token", "ghs_", Word, (36, 255)),
    run("github token", "ghr_", Word, (36, 255)),
    run("github token", "github_pat_", Url, (60, 255)),
    run("gitlab token", "glpat-", Url, (20, 300)),
    run("gitlab token", "gldt-", Url, (20, 100)),
    run("gitlab token", "glrt-", Url, (20, 300)),
    run("gitlab token", "glptt-", Url, (20, 100)),
    run("gitlab token", "glcbt-", Url, (20, 100)),
    run("gitlab token", "glsoat-", Url, (20, 100)),
    run("gitlab token", "GR1348941", Url, (20, 20)),
    run("bitbucket password", "ATBB", Word, (32, 32)),
    run("atlassian token", "ATATT3", Base64, (100, 300)),
    run("npm token", "npm_", Word, (36, 36)),
    run("pypi token", "pypi-AgE", Url, (50, LONGEST)),
    run("rubygems key", "rubygems_", Hex, (48, 48)),
    mixed("crates.io token", "cio", Word, (32, 32)),
    run("docker token", "dckr_pat_", Url, (24, 64)),
    run("docker token", "dckr_oat_", Url, (24, 64)),
    run("sourcegraph token", "sgp_", Url, (40, 80)),
    run("postman key", "PMAK-", Url, (59, 59)),
    // Messages and work.
    run("slack token", "xoxb-", Url, (24, 200)),
    run("slack token", "xoxp-", Url, (24, 200)),
    run("slack token", "xoxa-", Url, (24, 200)),
    run("slack token", "xoxr-", Url, (24, 200)),
    run("slack token", "xoxs-", Url, (24, 200)),
    run("slack token", "xoxe.xox", Url, (24, 300)),
    run("slack token", "xapp-", Url, (40, 200)),
    run("slack webhook", "hooks.slack.com/services/", Escaped, (30, 120)),
    run("discord webhook", "discord.com/api/webhooks/", Escaped, (60, 160)),
    other("telegram token", ":AA", Rest::BotToken),
    run("linear key", "lin_api_", Word, (40, 40)),
    run("notion token", "ntn_", Word, (40, 60)),
    run("notion token", "secret_", Word, (43, 43)),
    run("figma token", "figd_", Url, (40, 60)),
    run("sendgrid key", "SG.", Dotted, (66, 66)),
    run("mailgun key", "key-", Hex, (32, 32)),
    run("grafana token", "glc_", Base64, (32, 400)),
    run("grafana token", "glsa_", Url, (41, 41)),
    run("sentry token", "sntrys_", Base64, (50, 400)),
    run("sentry token", "sntryu_", Hex, (64, 64)),
    run("new relic key", "NRAK-", Upper, (27, 27)),
    // Money.
    run("stripe key", "sk_live_", Word, (16, 255)),
    run("stripe key", "sk_test_", Word, (16, 255)),
    run("stripe key", "rk_live_", Word, (16, 255)),
    run("stripe key", "rk_test_", Word, (16, 255)),
    run("stripe secret", "whsec_", Base64, (24, 88)),
    run("shopify token", "shpat_", Hex, (32, 32)),
    run("shopify token", "shpss_", Hex, (32, 32)),
    run("square token", "sq0atp-", Url, (22, 22)),
    run("square secret", "sq0csp-", Url, (43, 43)),
    // Forms of no vendor.
    run("age key", "AGE-SECRET-KEY-1", Upper, (58, 58)),
    other("signed token", "eyJ", Rest::Jwt),
    other("private key", "-----BEGIN ", Rest::Pem),
    other("password", "://", Rest::UrlPassword),
    mixed("bearer token", "bearer ", Dotted, (20, LONGEST)),
    run("basic login", "authorization: basic ", Base64, (12, 400)),
    other("secret", "secret_access_key", Rest::Value(36)),
    other("secret", "secretaccesskey", Rest::Value(36)),
    other("secret", "api_key", Rest::Value(16)),
    other("secret", "api-key", Rest::Value(16)),
    other("secret", "apikey", Rest::Value(16)),
    other("secret", "secret_key", Rest::Value(16)),
    other("secret", "client_secret", Rest::Value(16)),
    other("secret", "auth_token", Rest::Value(16)),
    other("secret", "access_token", Rest::Value(16)),
    other("secret", "refresh_token", Rest::Value(16)),
    other("secret", "session_token", Rest::Value(16)),
    other("secret", "password", Rest::Value(8)),
    other("secret", "passwd", Rest::Value(8)),
];
