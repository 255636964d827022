//! The report as one file: page, style, script and data, which needs nothing from elsewhere.

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// One module in several files; none can do without those before it.
const SCRIPT: &str = concat!(
    include_str!("dagre.min.js"),
    "\n",
    include_str!("data.js"),
    "\n",
    include_str!("elements.js"),
    "\n",
    include_str!("tree.js"),
    "\n",
    include_str!("module.js"),
    "\n",
    include_str!("graph.js"),
    "\n",
    include_str!("page.js"),
);

/// The page that shows `data`, which is JSON text.
///
/// Names of a model are hostile. In JSON `<` occurs only inside of strings, so that its escape changes nothing of what the
/// data says, and leaves nothing in it that a browser could take for the end of the script or for a comment.
pub fn page(data: &str) -> String {
    let data = data.replace('<', "\\u003c");
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
    // What was put in is never searched: it may hold the text of a placeholder.
    let mut rest = PAGE;
    for (placeholder, text) in [("/*STYLE*/", STYLE), ("/*DATA*/", &data), ("/*SCRIPT*/", SCRIPT)] {
        let (before, after) = rest.split_once(placeholder).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data as a browser sees it: from the opening tag to the first thing that ends a script.
    fn data_of(page: &str) -> &str {
        let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
        rest.split_once("</script").unwrap().0
    }

    #[test]
    fn each_placeholder_is_there_once_and_in_order() {
        let places = ["/*STYLE*/", "/*DATA*/", "/*SCRIPT*/"].map(|placeholder| {
            assert_eq!(PAGE.matches(placeholder).count(), 1, "{placeholder}");
            PAGE.find(placeholder).unwrap()
        });
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn everything_is_put_in() {
        let page = page(r#"{"schema":1}"#);
        assert!(page.contains(STYLE) && page.contains(SCRIPT));
        assert_eq!(data_of(&page), r#"{"schema":1}"#);
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    }

    #[test]
    fn names_cannot_end_the_script_or_begin_a_comment() {
        for name in [
            "</script><script>alert(1)</script>",
            "<!--",
            "<!--<script>",
            "</SCRIPT\t>",
            "<img src=x onerror=alert(1)>",
        ] {
            let data = serde_json::json!({ "title": name });
            let page = page(&data.to_string());
            assert!(!page.contains(name), "{name}");
            let seen: serde_json::Value = serde_json::from_str(data_of(&page)).unwrap();
            assert_eq!(seen, data, "{name}");
        }
    }

    #[test]
    fn names_that_look_like_placeholders_stay_names() {
        let data = serde_json::json!({ "title": "/*STYLE*/ /*DATA*/ /*SCRIPT*/" });
        let page = page(&data.to_string());
        assert_eq!(page.matches(SCRIPT).count(), 1);
        assert_eq!(data_of(&page), data.to_string());
    }

    #[test]
    fn style_and_script_do_not_end_themselves() {
        assert!(!STYLE.to_ascii_lowercase().contains("</style"));
        let script = SCRIPT.to_ascii_lowercase();
        assert!(!script.contains("</script") && !script.contains("<!--"));
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let page = page("{}").replace("http://www.w3.org/2000/svg", "");
        // The drawing names its own arrow.
        let page = page.replace("url(#arrow)", "");
        for outside in ["http:", "https:", "@import", "url(", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
