//! `everloop ticket notifiers` and deliveries of the supervisor: messages arrive, answers come back, a crash
//! sends again under the same key, and no secret is seen.

use std::time::Duration;

use everloop_testkit::post_office::{Act, PostOffice};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::env::{Background, Env};
use crate::secrets::{command_lines, files_with, holds};

const TOKEN: &str = "4711:canary-token-9f8e7d";
const CHAT: i64 = -100_200;

/// A world with a project that sends its tickets to `post_office` by a bot.
fn with_bot(post_office: &PostOffice) -> Env {
    let env = Env::new().var("BOT_TOKEN", TOKEN);
    let bot = format!(
        "[[notify]]\nname = \"phone\"\nkind = \"telegram\"\nurl = \"{}\"\ntoken_env = \"BOT_TOKEN\"\nchat = \"{CHAT}\"\n",
        post_office.url("")
    );
    env.write("everloop.toml", &bot);
    env
}

/// A world with a project that posts its tickets to `post_office`.
fn with_webhook(post_office: &PostOffice, more: &str) -> Env {
    let env = Env::new();
    let hook = format!("[[notify]]\nkind = \"webhook\"\nurl = \"{}\"\n{more}", post_office.url("/hook"));
    env.write("everloop.toml", &hook);
    env
}

/// A supervisor with a loop that only waits, so that the project's notifiers are known.
fn up(env: &Env) -> Background {
    if !env.state().join("ledger.db").exists() {
        env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    }
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("it runs", || env.run(&["status", "--json"]).ok().json()["supervisor"].is_object());
    up
}

#[test]
fn a_question_reaches_a_phone_and_a_button_lets_the_loop_go_on() {
    let post_office = PostOffice::open(TOKEN);
    let env = with_bot(&post_office);
    let everloop = format!("{} --state-dir {}", env!("CARGO_BIN_EXE_everloop"), env.state().display());
    env.script(
        "agent",
        &format!(
            "if grep -q 'Answer to your question' && true; then touch done; else\n\
             {everloop} message send person 'may I drop it?' --about $EVERLOOP_LOOP\n{everloop} pause $EVERLOOP_LOOP --for 1h; fi"
        ),
    );
    let agent = env.project().join("agent").display().to_string();
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", &agent, "--min-gap", "0"]);
    env.wait_for("the message arrives", || !post_office.chat().is_empty());
    let message = post_office.chat()[0].clone();
    assert_eq!(message["chat_id"], CHAT.to_string());
    assert!(message["text"].as_str().is_some_and(|text| text.contains("may I drop it?")), "{message}");
    let yes = &message["reply_markup"]["inline_keyboard"][0][0];
    assert_eq!(yes["text"], "Yes");
    env.wait_for("the loop sleeps", || env.run(&["why"]).stdout.contains("it was put to sleep"));
    // A stranger that found the bot, and then the same press twice.
    post_office.press(666, "answer:1:no");
    post_office.press(CHAT, yes["callback_data"].as_str().expect("a button has data"));
    post_office.forget();
    run.wait().ok();
    let logs = env.run(&["logs", "-n", "200"]).ok().stdout;
    assert_eq!(logs.matches("Answer to your question").count(), 1, "{logs}");
    assert!(logs.contains("ann (telegram)"), "{logs}");
    let ticket = env.run(&["ticket", "show", "1", "--json"]).ok().json();
    assert_eq!(ticket["ticket"]["answer"], "ann (telegram): yes");
    env.run(&["replay"]).ok();
    assert_eq!(files_with(&env.state(), &[TOKEN.to_owned()]), Vec::new(), "the token is kept nowhere");
}

#[test]
fn who_presses_is_told_what_came_of_it_and_written_words_count_too() {
    let post_office = PostOffice::open(TOKEN);
    let env = with_bot(&post_office);
    let up = up(&env);
    env.run(&["message", "send", "person", "first?"]).ok();
    env.run(&["message", "send", "person", "second?"]).ok();
    env.wait_for("both arrive", || post_office.chat().len() == 2);
    post_office.press(CHAT, "ack:1");
    env.wait_for("it is confirmed", || post_office.confirmed().len() == 1);
    assert_eq!(post_office.confirmed(), ["#1 is not repeated any more"]);
    let shown = env.run(&["ticket", "show", "1"]).exits(4).stdout;
    assert!(
        shown.contains("seen by ann (telegram)") && shown.contains("phone: ") && shown.contains("[notify.acked]"),
        "{shown}"
    );
    let second = post_office.chat()[1]["text"].as_str().expect("it has a text").to_owned();
    post_office.reply(CHAT, "only on Sundays", &second);
    env.wait_for("it is answered", || {
        env.run(&["ticket", "show", "2", "--json"]).json()["ticket"]["answer"] == "ann (telegram): only on Sundays"
    });
    post_office.press(CHAT, "answer:2:no");
    env.wait_for("the late one is answered", || post_office.confirmed().len() == 2);
    assert!(post_office.confirmed()[1].contains("closed already"), "{:?}", post_office.confirmed());
    assert!(post_office.polls() < 20, "long polling, not polling: {}", post_office.polls());
    env.run(&["down"]).ok();
    up.wait().exits(143);
    assert!(!holds(&command_lines(), TOKEN));
}

#[test]
fn killed_between_sending_and_writing_it_down_it_is_sent_again_under_the_same_key() {
    let post_office = PostOffice::open(TOKEN);
    let env = with_webhook(&post_office, "");
    post_office.meet(&[Act::Hang]);
    let first = up(&env);
    env.run(&["message", "send", "person", "may I?"]).ok();
    env.wait_for("it arrives", || post_office.letters().len() == 1);
    first.signal(Signal::SIGKILL);
    assert_eq!(first.wait().code, 128 + 9);
    let second = up(&env);
    env.wait_for("it is sent again", || post_office.letters().len() == 2);
    let letters = post_office.letters();
    assert_eq!(letters[0].header("idempotency-key"), letters[1].header("idempotency-key"));
    assert_eq!(letters[0].body, letters[1].body);
    assert_eq!(letters[0].json()["tickets"], json!([1]));
    env.run(&["message", "send", "person", "and this?"]).ok();
    env.wait_for("the next one goes", || post_office.letters().len() == 3);
    assert_eq!(post_office.counted(), 2);
    env.run(&["down"]).ok();
    second.wait().exits(143);
}

#[test]
fn a_limit_is_waited_out_and_an_error_is_tried_again() {
    let post_office = PostOffice::open(TOKEN);
    let env = with_webhook(&post_office, "");
    post_office.meet(&[Act::TooMany(2), Act::Status(503)]);
    let up = up(&env);
    env.run(&["message", "send", "person", "may I?"]).ok();
    env.wait_for("it is refused", || !post_office.letters().is_empty());
    env.wait_for("status shows it", || env.run(&["status"]).ok().stdout.contains("notifier webhook cannot be reached"));
    env.wait_for("it arrives", || post_office.letters().len() == 3);
    let letters = post_office.letters();
    assert!(letters[1].at.duration_since(letters[0].at) >= Duration::from_secs(2), "come back in 2 s means that");
    assert_eq!(post_office.counted(), 1);
    env.wait_for("all is well", || !env.run(&["status"]).ok().stdout.contains("cannot be reached"));
    env.run(&["down"]).ok();
    up.wait().exits(143);
    assert_eq!(post_office.letters().len(), 3, "what arrived is not sent again");
}

#[test]
fn quiet_hours_keep_a_question_back_and_routes_are_kept() {
    let post_office = PostOffice::open(TOKEN);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is past 1970").as_secs() / 60;
    let clock = |minute: u64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
    let quiet = format!("quiet_hours = \"{}-{}Z\"\n", clock(now + 24 * 60 - 60), clock(now + 60));
    let third = format!(
        "[[notify]]\nname = \"alarm\"\nkind = \"webhook\"\nurl = \"{}\"\nmin_severity = \"critical\"\n",
        post_office.url("/alarm")
    );
    let second = format!(
        "{quiet}[[notify]]\nname = \"day\"\nkind = \"webhook\"\nurl = \"{}\"\n{third}",
        post_office.url("/day")
    );
    let env = with_webhook(&post_office, &second);
    let up = up(&env);
    env.run(&["message", "send", "person", "may I?"]).ok();
    env.wait_for("the one without quiet hours gets it", || !post_office.letters().is_empty());
    let words = [
        "webhook: waits for the end of the quiet hours",
        "[notify.quiet]",
        "day: was sent 1 times",
        "alarm: is not for this",
    ];
    env.wait_for_words(&["ticket", "show", "1"], &words);
    assert!(post_office.letters().iter().all(|letter| letter.path == "/day"));
    env.run(&["down"]).ok();
    up.wait().exits(143);
}

#[test]
fn a_notifier_of_a_project_is_for_its_loops_and_one_of_the_person_for_all() {
    let post_office = PostOffice::open(TOKEN);
    let env = with_webhook(&post_office, "");
    let mine = format!("[[notify]]\nname = \"mine\"\nkind = \"webhook\"\nurl = \"{}\"\n", post_office.url("/mine"));
    env.write("../home/.config/everloop/config.toml", &mine);
    let up = up(&env);
    env.write("../other/README", "");
    let other =
        ["-C", "../other", "run", "y", "--check", "false", "--agent-cmd", "true", "-n", "1", "--detach", "--json"];
    let id = env.run(&other).ok().json()["loop"].as_str().expect("a loop has an id").to_owned();
    let to = |path: &str| -> Vec<_> {
        let all = post_office.letters().into_iter().filter(|letter| letter.path == path);
        all.flat_map(|letter| letter.json()["tickets"].as_array().cloned().unwrap_or_default()).collect()
    };
    env.run(&["message", "send", "person", "about the other project?", "--about", &id]).ok();
    env.wait_for("the person's has it", || to("/mine") == [json!(1)]);
    env.run(&["message", "send", "person", "about nothing?"]).ok();
    env.wait_for("both have the next one", || to("/hook") == [json!(2)] && to("/mine") == [json!(1), json!(2)]);
    env.run(&["down"]).ok();
    up.wait().exits(143);
}

#[test]
fn every_kind_says_what_it_has_to_say() {
    let post_office = PostOffice::open(TOKEN);
    let env = with_bot(&post_office)
        .var("SLACK_URL", &post_office.url("/slack/canary-path"))
        .var("SIGN_KEY", "canary-signing");
    let env = env.var("SMS_PASSWORD", "canary-password").var("SMS_TOKEN", "canary-token");
    let bin = env.project().join("bin");
    env.script("bin/notify-send", &format!("printf '%s\\n' \"$@\" > {}/desktop.txt", env.project().display()));
    env.script("bin/take", &format!("cat > {}/$1.txt", env.project().display()));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let env = env.var("PATH", &path);
    let more = format!(
        "[[notify]]\nkind = \"slack\"\nurl_env = \"SLACK_URL\"\n\
         [[notify]]\nkind = \"ntfy\"\nurl = \"{base}\"\ntopic = \"my-loops\"\n\
         [[notify]]\nkind = \"sms\"\nurl = \"{base}/sms\"\nto = [\"+49123\"]\nuser = \"me\"\npassword_env = \"SMS_PASSWORD\"\n\
         fields = {{ To = \"{{to}}\", Body = \"{{text}}\" }}\n\
         [[notify]]\nname = \"gateway\"\nkind = \"sms\"\nurl = \"{base}/gateway\"\nto = [\"+49124\"]\n\
         token_env = \"SMS_TOKEN\"\njson = true\nfields = {{ To = \"{{to}}\", Body = \"{{text}}\" }}\n\
         [[notify]]\nkind = \"webhook\"\nurl = \"{base}/hook\"\nsecret_env = \"SIGN_KEY\"\n\
         [[notify]]\nkind = \"mail\"\nto = [\"me@example.com\"]\nfrom = \"loop@example.com\"\ncommand = [\"take\", \"mail\"]\n\
         writable = [\"{project}\"]\n[[notify]]\nkind = \"desktop\"\nisolation = \"none\"\n\
         [[notify]]\nkind = \"command\"\ncommand = [\"take\", \"command\"]\nwritable = [\"{project}\"]\n",
        base = post_office.url(""),
        project = env.project().display(),
    );
    let toml = format!("{}{more}", env.read("everloop.toml"));
    env.write("everloop.toml", &toml);
    let tested = env.run(&["ticket", "notifiers", "--test", "--json"]).ok().json();
    assert_eq!(tested["notifiers"].as_array().map(Vec::len), Some(9), "{tested}");
    let to =
        |path: &str| post_office.letters().into_iter().find(|l| l.path == path).unwrap_or_else(|| panic!("{path}"));
    assert!(
        to("/slack/canary-path").json()["text"].as_str().is_some_and(|text| text.starts_with("*everloop: a test*"))
    );
    assert_eq!((to("/my-loops").header("title"), to("/my-loops").header("priority")), ("everloop: a test", "2"));
    assert!(to("/sms").body.starts_with("Body=everloop%3A%20a%20test%20") && to("/sms").body.ends_with("&To=%2B49123"));
    assert_eq!(to("/sms").header("authorization"), "Basic bWU6Y2FuYXJ5LXBhc3N3b3Jk");
    assert_eq!(to("/gateway").json()["To"], "+49124");
    assert_eq!(to("/gateway").header("authorization"), "Bearer canary-token");
    assert!(to("/hook").header("x-everloop-signature").starts_with("sha256="));
    assert_eq!(env.read("desktop.txt").lines().nth(5), Some("everloop: a test"));
    assert!(env.read("mail.txt").contains("Subject: everloop: a test\r\n"));
    assert!(env.read("command.txt").contains("\"title\":\"everloop: a test\""));
    let listed = env.run(&["ticket", "notifiers"]).ok().stdout;
    assert!(listed.contains("phone (telegram); info and above; this project"), "{listed}");
    let one = env.run(&["ticket", "notifiers", "--test", "nobody"]).exits(2).stderr;
    assert!(one.contains("there are: phone, slack"), "{one}");
    post_office.meet(&[Act::Status(404)]);
    let failed = env.run(&["ticket", "notifiers", "--test", "slack"]).exits(1).stdout;
    assert!(failed.contains("slack (slack): not sent: it answered 404") && !failed.contains("canary"), "{failed}");
    let shown = env.run(&["config", "show"]).stdout + &env.run(&["doctor"]).stdout;
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn a_login_is_read_only_by_the_notifier_that_names_it() {
    let env = Env::new();
    env.write("../home/.config/gh/hosts.yml", "t0ken");
    env.script("../bin/gh", "grep -q t0ken $HOME/.config/gh/hosts.yml || { echo not logged in >&2; exit 4; }");
    let bin = env.project().join("../bin");
    let env = env.var("PATH", &format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()));
    let notifier = "[[notify]]\nkind = \"command\"\ncommand = [\"gh\", \"issue\", \"comment\"]\n";
    env.write("everloop.toml", notifier);
    let refused = env.run(&["ticket", "notifiers", "--test"]).exits(1).stdout;
    assert!(refused.contains("not logged in") && refused.contains("`readable = [\"~/.config/gh\"]`"), "{refused}");
    env.write("everloop.toml", &format!("{notifier}readable = [\"~/.config/gh\"]\n"));
    env.run(&["ticket", "notifiers", "--test"]).ok();
    env.write("everloop.toml", &format!("{notifier}isolation = \"none\"\n"));
    env.run(&["ticket", "notifiers", "--test"]).ok();
    env.write("everloop.toml", &format!("{notifier}readable = [\".config/gh\"]\n"));
    let wrong = env.run(&["config", "check"]).exits(7).stderr;
    assert!(wrong.contains("is not a whole path"), "{wrong}");
}

#[test]
fn a_bot_that_is_refused_disturbs_nothing_and_shows_no_secret() {
    let post_office = PostOffice::open("another token");
    let env = with_bot(&post_office);
    let up = up(&env);
    env.run(&["message", "send", "person", "may I?"]).ok();
    env.wait_for("status shows it", || env.run(&["status"]).ok().stdout.contains("notifier phone cannot be reached"));
    let said = env.run(&["doctor"]).stdout;
    assert!(said.contains("everloop ticket notifiers --test phone") && said.contains("401: Unauthorized"), "{said}");
    env.run(&["down"]).ok();
    let log = up.wait().exits(143);
    assert!(!log.stderr.contains(TOKEN) && log.stderr.contains("cannot deliver a message"), "{}", log.stderr);
    assert_eq!(files_with(&env.state(), &[TOKEN.to_owned()]), Vec::new());
}

#[test]
fn mistakes_are_told_with_their_place_and_without_secrets() {
    for (toml, says) in [
        ("kind = \"telegram\"\nchat = \"1\"\n", "has no `token_env`"),
        (
            "kind = \"slack\"\nurl = \"https://hooks.example/canary\"\n",
            "means nothing for a notifier of the kind `slack`",
        ),
        ("kind = \"telegram\"\nchat = \"1\"\ntoken_env = \"123:canary\"\n", "no name of a variable"),
        ("kind = \"webhook\"\nurl = \"http://example.com/canary\"\n", "in the open"),
        ("kind = \"mail\"\nto = [\"a@b\\nBcc: c@d\"]\nfrom = \"x@y\"\nsmtp = \"smtp://h\"\n", "no plain address"),
        ("kind = \"desktop\"\nquiet_hours = \"22-7\"\n", "no span of a day"),
        ("kind = \"pigeon\"\n", "one of"),
        ("name = \"x\"\n", "has no `kind`"),
        ("kind = \"desktop\"\n[[notify]]\nkind = \"desktop\"\n", "two notifiers are called"),
    ] {
        let env = Env::new();
        env.write("everloop.toml", &format!("[[notify]]\n{toml}"));
        let refused = env.run(&["config", "check"]).exits(7).stderr;
        assert!(refused.contains(says) && refused.contains("everloop.toml"), "{toml}: {refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }
}
