//! A supervisor with its dashboard, and a browser that logged in.

use std::net::SocketAddr;

use everloop_testkit::browser::Browser;
use everloop_testkit::wait::{DEADLINE, wait_until};

use super::link;
use crate::env::{Background, Env};

/// A supervisor on a port of its own.
pub fn up(env: &Env) -> (Background, SocketAddr) {
    let up = env.spawn(&["up", "--listen", "127.0.0.1:0"]);
    (up, env.port())
}

/// All of it.
pub struct Desk {
    pub env: Env,
    pub browser: Browser,
    pub address: SocketAddr,
    /// Ends with the desk.
    #[expect(dead_code, reason = "it is held, not used")]
    up: Background,
}

impl Desk {
    /// A supervisor for this world, and a browser on its first page.
    pub fn new(env: Env) -> Self {
        let (up, address) = up(&env);
        let browser = Browser::start();
        let desk = Self { env, browser, address, up };
        desk.log_in();
        desk
    }

    pub fn log_in(&self) {
        self.browser.open(&link(&self.env));
        seen("the first page", || self.browser.count("#working") == 1);
    }

    /// Opens a page of the dashboard.
    pub fn open(&self, path: &str) {
        self.browser.open(&format!("http://{}{path}", self.address));
    }

    /// The text of the whole page.
    pub fn text(&self) -> String {
        self.browser.eval_text("return document.body.innerText")
    }

    /// Waits for words on the page, which is not loaded again by the test.
    #[track_caller]
    pub fn wait_for_words(&self, words: &str) {
        seen(words, || self.text().contains(words));
    }
}

/// Waits until a person would see it.
#[track_caller]
pub fn seen(what: &str, condition: impl FnMut() -> bool) {
    wait_until(what, DEADLINE, condition);
}
