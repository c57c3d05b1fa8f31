//! A real Chromium without a window, driven over WebDriver: opens pages, runs scripts, clicks and
//! types, sets colour scheme and size, takes pictures, prints, and lists what the page requested.
//!
//! Debian's `chromium` and `chromium-driver`. Each browser has a folder of its own for its profile
//! and home, which marks its processes, so that all of them end with it, also when a test panics.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use self::wire::{Wire, bytes};
use crate::wait::{DEADLINE, try_wait_for, wait_for};

mod wire;

/// Names the folder of a browser in the environment of its processes.
const MARK: &str = "EVERLOOP_TEST_BROWSER";
/// A driver that is alive but silent is broken; a busy machine starts Chromium within this.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);
/// WebDriver's name of an element's id.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// No sandbox, because tests run as root in containers; nothing that uses the network by itself.
const FLAGS: [&str; 15] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--password-store=basic",
    // The driver talks to it through a pipe, so that it ends when the driver is gone.
    "--remote-debugging-pipe",
];

/// What a page is asked to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourScheme {
    Light,
    Dark,
}

impl ColourScheme {
    pub const ALL: [ColourScheme; 2] = [ColourScheme::Light, ColourScheme::Dark];

    /// The word of the media query.
    pub fn label(self) -> &'static str {
        match self {
            ColourScheme::Light => "light",
            ColourScheme::Dark => "dark",
        }
    }
}

/// Whether pages may run their own scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageScripts {
    On,
    Off,
}

/// One window of a Chromium of its own; it ends with the value.
pub struct Browser {
    wire: Wire,
    driver: Child,
    folder: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The polite way writes the profile; what is left after it is killed.
        if let Err(e) = self.wire.end_session() {
            drop(e);
        }
        self.kill();
    }
}

impl Browser {
    /// Starts Chromium with an empty profile.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("everloop-browser-").tempdir().expect("a folder can be made");
        let log = folder.path().join("driver.log");
        let out = fs::File::create(&log).expect("the folder was just made");
        let driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("HOME", folder.path())
            .env("XDG_CONFIG_HOME", folder.path().join("config"))
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .env(MARK, folder.path())
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start `chromedriver` ({e}): apt-get install chromium chromium-driver"));
        let mut browser = Self { wire: Wire::default(), driver, folder };
        let port = wait_for("chromedriver names its port", DEADLINE, || port_of(&fs::read_to_string(&log).ok()?));
        browser.wire = Wire::to(port);
        browser.begin();
        browser
    }

    fn begin(&mut self) {
        let mut args: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        args.push(format!("--user-data-dir={}", self.folder.path().join("profile").display()));
        let options = json!({ "args": args, "perfLoggingPrefs": { "enableNetwork": true, "enablePage": false } });
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "performance": "ALL", "browser": "ALL" },
            "timeouts": { "script": SCRIPT_TIMEOUT.as_millis() as u64, "pageLoad": DEADLINE.as_millis() as u64 },
        });
        self.wire.begin_session(&json!({ "capabilities": { "alwaysMatch": wanted } }));
    }

    /// Kills what carries this browser's mark, and waits until it is gone.
    fn kill(&mut self) {
        self.driver.kill().ok();
        self.driver.wait().ok();
        try_wait_for(DEADLINE, || {
            let left = marked(self.folder.path());
            for pid in &left {
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL).ok();
            }
            left.is_empty().then_some(())
        });
    }

    /// The ids of all its processes.
    pub fn processes(&self) -> Vec<i32> {
        marked(self.folder.path())
    }

    /// Opens an address and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.wire.post("/url", &json!({ "url": url }));
    }

    /// Opens a file.
    pub fn open_file(&self, path: &Path) {
        self.open(&format!("file://{}", path.canonicalize().expect("the file is there").display()));
    }

    /// The value of a script's `return`, on the page.
    pub fn eval(&self, script: &str) -> Value {
        self.wire.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The same as a text; empty when it is none.
    pub fn eval_text(&self, script: &str) -> String {
        self.eval(script).as_str().unwrap_or_default().to_owned()
    }

    /// The text that a person sees at the first element of a CSS selector.
    pub fn text(&self, selector: &str) -> String {
        let id = self.find(selector);
        self.wire.get(&format!("/element/{id}/text")).as_str().unwrap_or_default().to_owned()
    }

    /// How many elements a CSS selector finds.
    pub fn count(&self, selector: &str) -> usize {
        let found = self.wire.post("/elements", &json!({ "using": "css selector", "value": selector }));
        found.as_array().map_or(0, Vec::len)
    }

    fn find(&self, selector: &str) -> String {
        let found = self.wire.post("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("`{selector}` is not on the page")).to_owned()
    }

    /// Clicks as a person does: the element has to be visible.
    pub fn click(&self, selector: &str) {
        let id = self.find(selector);
        self.wire.post(&format!("/element/{id}/click"), &json!({}));
    }

    /// Types into an element.
    pub fn type_into(&self, selector: &str, text: &str) {
        let id = self.find(selector);
        self.wire.post(&format!("/element/{id}/value"), &json!({ "text": text }));
    }

    /// A command of the DevTools protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.wire.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// What pages are asked to look like from now on.
    pub fn prefer(&self, scheme: ColourScheme) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme.label() });
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// The size of the page in CSS pixels.
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Applies to pages that are opened from now on; scripts of tests run all the same.
    pub fn scripts(&self, of_pages: PageScripts) {
        self.devtools("Emulation.setScriptExecutionDisabled", &json!({ "value": of_pages == PageScripts::Off }));
    }

    /// The whole page as PNG, as long as it is.
    pub fn picture(&self) -> Vec<u8> {
        let shot = json!({ "format": "png", "captureBeyondViewport": true });
        bytes(&self.devtools("Page.captureScreenshot", &shot)["data"])
    }

    /// The picture of the page as a file for people.
    pub fn keep_picture(&self, name: &str) -> PathBuf {
        let dir = pictures();
        fs::create_dir_all(&dir).expect("the target folder can be written");
        let path = dir.join(format!("{name}.png"));
        fs::write(&path, self.picture()).expect("the folder was just made");
        path
    }

    /// The page as PDF on A4 paper.
    pub fn pdf(&self) -> Vec<u8> {
        let page = json!({ "page": { "width": 21.0, "height": 29.7 }, "background": true });
        bytes(&self.wire.post("/print", &page))
    }

    /// The addresses that pages requested since the last call, without those in the page itself and
    /// those of the browser's own pages.
    pub fn requests(&self) -> Vec<String> {
        let log = self.wire.post("/se/log", &json!({ "type": "performance" }));
        let entries = log.as_array().cloned().unwrap_or_default();
        let messages = entries.iter().filter_map(|entry| serde_json::from_str(entry["message"].as_str()?).ok());
        let sent = messages.filter_map(|message: Value| {
            let message = &message["message"];
            let is_sent = message["method"] == "Network.requestWillBeSent";
            is_sent.then(|| message["params"]["request"]["url"].as_str().map(str::to_owned))?
        });
        sent.filter(|url| !["data:", "chrome:"].iter().any(|own| url.starts_with(own))).collect()
    }

    /// Errors and warnings of pages since the last call: broken files, refusals of the policy.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.wire.post("/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// How many pages a PDF has.
pub fn pages(pdf: &[u8]) -> usize {
    let text = String::from_utf8_lossy(pdf);
    text.matches("/Type /Page").count() - text.matches("/Type /Pages").count()
}

/// Where pictures for people are: beside the other results of a build.
pub fn pictures() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")).join("screenshots")
}

fn port_of(log: &str) -> Option<u16> {
    let rest = log.split_once("started successfully on port ")?.1;
    rest.split_once('.')?.0.trim().parse().ok()
}

/// Processes with this folder in their environment or, because Chromium's helpers clear theirs, in
/// their command line.
fn marked(folder: &Path) -> Vec<i32> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let holds = |pid: i32, file: &str| -> io::Result<bool> {
        let bytes = fs::read(format!("/proc/{pid}/{file}"))?;
        Ok(bytes.windows(folder.len()).any(|window| window == folder))
    };
    let own = std::process::id().cast_signed();
    let all = fs::read_dir("/proc").expect("tests run on Linux").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).filter(|pid| *pid != own);
    pids.filter(|pid| ["environ", "cmdline"].iter().any(|file| holds(*pid, file).unwrap_or(false))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<!doctype html><meta name=viewport content=\"width=device-width\"><title>t</title><style>body{background:#fff}\
        @media (prefers-color-scheme:dark){body{background:#000}}</style>\
        <input id=name><button onclick=\"document.title='clicked'\">go</button><p>words</p>\
        <noscript><b>no scripts</b></noscript>";

    #[test]
    fn a_page_is_opened_used_and_printed_and_nothing_lives_on() {
        let browser = Browser::start();
        let file = browser.folder.path().join("page.html");
        fs::write(&file, PAGE).expect("the folder is the browser's");
        browser.open_file(&file);
        assert_eq!((browser.text("p").as_str(), browser.count("button")), ("words", 1));
        browser.type_into("#name", "Ann");
        assert_eq!(browser.eval("return document.querySelector('#name').value"), "Ann");
        browser.click("button");
        assert_eq!(browser.eval_text("return document.title"), "clicked");
        let background = "return getComputedStyle(document.body).backgroundColor";
        for (scheme, colour) in [(ColourScheme::Dark, "rgb(0, 0, 0)"), (ColourScheme::Light, "rgb(255, 255, 255)")] {
            browser.prefer(scheme);
            assert_eq!(browser.eval_text(background), colour);
        }
        browser.resize(360, 640);
        assert_eq!(browser.eval("return innerWidth"), 360);
        assert!(browser.picture().starts_with(b"\x89PNG"));
        assert_eq!(pages(&browser.pdf()), 1);
        assert_eq!(browser.requests(), [format!("file://{}", file.display())]);
        browser.scripts(PageScripts::Off);
        browser.open_file(&file);
        assert_eq!(browser.text("b"), "no scripts");
        let folder = browser.folder.path().to_owned();
        assert!(browser.processes().len() > 1, "the driver and Chromium");
        drop(browser);
        assert_eq!(marked(&folder), Vec::<i32>::new());
    }

    #[test]
    fn a_panic_ends_it_too() {
        let folder = std::sync::Mutex::new(PathBuf::new());
        let result = std::panic::catch_unwind(|| {
            let browser = Browser::start();
            *folder.lock().expect("one thread") = browser.folder.path().to_owned();
            browser.click("#nowhere");
        });
        assert!(result.is_err());
        let folder = folder.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        assert!(folder.starts_with(std::env::temp_dir()));
        assert_eq!(marked(&folder), Vec::<i32>::new());
    }
}
