//! Telegram: a bot that writes into one chat, with buttons, and reads presses and replies there.
//!
//! Answers arrive by long polling, so nothing has to be reachable from outside. An answer counts
//! once its number is in the ledger; until then Telegram keeps it.

use std::path::Path;
use std::time::Duration;

use everloop_core::outbound::tickets::{ReplyAction, pressed, replied};
use everloop_core::outbound::{Delivery, Undelivered};
use serde_json::{Value, json};

use super::secret::without;
use super::web::{WITHIN, Web, WebRequest, WebResponse};
use super::{Channel, Receiver, SecretSource};

/// Where the bot API is.
pub const BASE: &str = "https://api.telegram.org";
/// How long Telegram keeps a question for answers open: one connection, one request a minute.
pub const POLL: Duration = Duration::from_secs(50);
/// Answers that are taken at once.
const TAKEN: u32 = 50;

/// A bot and the chat it writes into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bot {
    /// Where the bot API is.
    pub base: String,
    /// The bot's token.
    pub token: SecretSource,
    /// The chat's number, or `@name` of a channel.
    pub chat: String,
    /// Whether answers are listened to.
    pub answers: bool,
}

/// A press or a reply in the chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatReply {
    /// Grows; the next question begins behind it.
    pub number: i64,
    /// The name of the person.
    pub by: String,
    /// What is meant; `None` for anything that is not for us.
    pub action: Option<ReplyAction>,
    /// The button that shows that it waits.
    pub press: Option<String>,
}

/// Listens to the answers of one bot, over one connection.
pub struct Listener {
    web: Web,
    bot: Bot,
    token: String,
}

fn call(web: &Web, (bot, token, method): (&Bot, &str, &str), body: &Value) -> Result<Value, Undelivered> {
    let url = format!("{}/bot{token}/{method}", bot.base.trim_end_matches('/'));
    let headers = vec![("content-type", "application/json".to_owned())];
    let answer = web.post(&WebRequest { url: &url, headers, body: body.to_string().as_bytes() });
    answer.and_then(understood).map_err(|e| without(&[token], e))
}

/// The body of an error holds its cause and the time of the next attempt.
fn understood(answer: WebResponse) -> Result<Value, Undelivered> {
    let mut body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    if answer.status == 200 && body["ok"] == true {
        return Ok(body["result"].take());
    }
    let asked = body["parameters"]["retry_after"].as_u64().map(Duration::from_secs);
    let answer = WebResponse { retry_after: asked.or(answer.retry_after), ..answer };
    Err(answer.refusal(body["description"].as_str().unwrap_or(&answer.body)))
}

pub(super) fn send(bot: &Bot, ca: Option<&Path>, message: &Delivery) -> Result<(), Undelivered> {
    let token = bot.token.value()?;
    let mut body = json!({
        "chat_id": bot.chat,
        "text": format!("{}\n\n{}", message.title, message.text),
        "disable_web_page_preview": true,
    });
    if bot.answers && !message.buttons.is_empty() {
        let row: Vec<Value> =
            message.buttons.iter().map(|b| json!({ "text": b.label, "callback_data": b.data })).collect();
        body["reply_markup"] = json!({ "inline_keyboard": [row] });
    }
    let web = Web::new(&bot.base, ca, WITHIN)?;
    call(&web, (bot, &token, "sendMessage"), &body).map(drop)
}

impl Listener {
    /// For a receiver that has answers; `None` for all others.
    pub fn new(receiver: &Receiver) -> Option<Result<Self, Undelivered>> {
        let Channel::Telegram(bot) = &receiver.channel else { return None };
        if !bot.answers {
            return None;
        }
        let make = || {
            let token = bot.token.value()?;
            Ok(Self { web: Web::new(&bot.base, receiver.ca_file.as_deref(), WITHIN + POLL)?, bot: bot.clone(), token })
        };
        Some(make())
    }

    /// Updates from `next` on; waits until there is one.
    pub fn listen(&self, next: i64) -> Result<Vec<ChatReply>, Undelivered> {
        let body = json!({
            "offset": next,
            "timeout": POLL.as_secs(),
            "limit": TAKEN,
            "allowed_updates": ["message", "callback_query"],
        });
        let result = call(&self.web, (&self.bot, &self.token, "getUpdates"), &body)?;
        let updates = result.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(updates.iter().filter_map(|update| self.heard(update)).collect())
    }

    /// Answers a press of a button with its result.
    pub fn confirm(&self, press: &str, text: &str) -> Result<(), Undelivered> {
        let text: String = text.chars().take(190).collect();
        let body = json!({ "callback_query_id": press, "text": text });
        call(&self.web, (&self.bot, &self.token, "answerCallbackQuery"), &body).map(drop)
    }

    fn heard(&self, update: &Value) -> Option<ChatReply> {
        let number = update["update_id"].as_i64()?;
        let query = &update["callback_query"];
        let (message, from) = if query.is_object() {
            (&query["message"], &query["from"])
        } else {
            (&update["message"], &update["message"]["from"])
        };
        let press = query["id"].as_str().map(str::to_owned);
        // Every user of Telegram can write to the bot; only the configured chat counts.
        let action = self.is_ours(&message["chat"]).then(|| match query["data"].as_str() {
            Some(data) => pressed(data),
            None => replied(message["text"].as_str()?, message["reply_to_message"]["text"].as_str()),
        });
        Some(ChatReply { number, by: name(from), action: action.flatten(), press })
    }

    fn is_ours(&self, chat: &Value) -> bool {
        let by_number = chat["id"].as_i64().is_some_and(|id| id.to_string() == self.bot.chat);
        let by_name = chat["username"].as_str().is_some_and(|name| format!("@{name}") == self.bot.chat);
        by_number || by_name
    }
}

/// The name of a person, for the journal.
fn name(from: &Value) -> String {
    let text = from["username"].as_str().or_else(|| from["first_name"].as_str()).unwrap_or("somebody");
    let text: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    format!("{text} (telegram)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ReceiverAccess;

    #[test]
    fn only_what_is_said_in_the_chat_counts() {
        let bot = Bot {
            base: "http://127.0.0.1:9".to_owned(),
            token: SecretSource::Env("HOME".to_owned()),
            chat: "-100".to_owned(),
            answers: true,
        };
        let receiver = Receiver {
            name: "t".to_owned(),
            channel: Channel::Telegram(bot),
            ca_file: None,
            dir: None,
            access: ReceiverAccess::default(),
        };
        let listener = Listener::new(&receiver).expect("it answers").expect("HOME is set");
        let press = |chat: i64| {
            json!({ "update_id": 5, "callback_query": { "id": "q", "data": "ack:17", "from": { "username": "ann" },
                "message": { "chat": { "id": chat } } } })
        };
        let heard = listener.heard(&press(-100)).expect("it is an update");
        assert_eq!((heard.action, heard.by.as_str()), (Some(ReplyAction::Ack { ticket: 17 }), "ann (telegram)"));
        let other = listener.heard(&press(7)).expect("it is an update");
        assert_eq!((other.action, other.number), (None, 5), "its number is passed all the same");
        let reply = json!({ "update_id": 6, "message": { "chat": { "id": -100 }, "text": "use 3.9", "from": {},
            "reply_to_message": { "text": "everloop #17 loop k3f9: warning\n\nmay I?" } } });
        let action = listener.heard(&reply).expect("it is an update").action;
        assert_eq!(action, Some(ReplyAction::Answer { ticket: 17, text: "use 3.9".to_owned() }));
        assert_eq!(listener.heard(&json!({ "update_id": 7, "edited_message": {} })).and_then(|h| h.action), None);
    }

    #[test]
    fn a_limit_says_when_to_come_back() {
        let body = r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 7","parameters":{"retry_after":7}}"#;
        let answer = WebResponse { status: 429, retry_after: None, body: body.to_owned() };
        let refused = understood(answer).expect_err("it is a limit");
        assert_eq!((refused.retry_after, refused.refused), (Some(Duration::from_secs(7)), None));
        assert!(refused.why.contains("Too Many Requests"), "{}", refused.why);
        let answer =
            WebResponse { status: 401, retry_after: None, body: r#"{"ok":false,"description":"Unauthorized"}"#.into() };
        assert!(understood(answer).expect_err("the token is wrong").refused.is_some());
    }
}
