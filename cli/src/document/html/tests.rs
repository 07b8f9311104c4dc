use scraper::{ElementRef, Html, Selector};

use super::super::examples::{extremes, hostile, report, HOSTILE};
use super::*;
use crate::document::plot::palette::tests::contrast;
use crate::foreign_text::printable;

fn all<'a>(page: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    page.select(&Selector::parse(selector).unwrap()).collect()
}

fn text(element: ElementRef<'_>) -> String {
    element.text().collect()
}

/// Every view of every example, in files: with `CUDASNAP_LOOK=FOLDER` they stay there, for looking at them in a browser.
#[test]
fn every_view_comes_into_a_file() {
    let own = tempfile::tempdir().unwrap();
    let asked = std::env::var_os("CUDASNAP_LOOK").map(std::path::PathBuf::from);
    let folder = asked.unwrap_or_else(|| own.path().into());
    for (name, document) in [
        ("report", report()),
        ("hostile", hostile()),
        ("extremes", extremes()),
    ] {
        let write = |kind: &str, content: &[u8]| {
            assert!(content.len() > 100, "{name}.{kind}");
            std::fs::write(folder.join(format!("{name}.{kind}")), content).unwrap();
        };
        write("html", html(&document).as_bytes());
        write("md", crate::document::markdown(&document).as_bytes());
        write(
            "txt",
            crate::document::terminal(&document, 100, false).as_bytes(),
        );
        write(
            "ansi",
            crate::document::terminal(&document, 80, true).as_bytes(),
        );
        write("png", &crate::document::png(&document).unwrap());
    }
}

#[test]
fn pages_are_valid_and_whole() {
    for document in [report(), hostile(), extremes(), Document::default()] {
        let page = Html::parse_document(&html(&document));
        assert_eq!(page.errors, Vec::<String>::new());
        assert_eq!(all(&page, "h1").len(), 1);
        assert_eq!(all(&page, "main > section").len(), document.sections.len());
        assert_eq!(all(&page, "aside li").len(), document.doubts.len());
        let plots = document.sections.iter().filter(|part| part.plot.is_some());
        assert_eq!(all(&page, "figure").len(), plots.count());
        let mut ids: Vec<&str> = all(&page, "[id]")
            .iter()
            .map(|element| element.attr("id").unwrap())
            .collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "two elements have one id");
    }
}

#[test]
fn nothing_is_loaded_or_run() {
    for document in [report(), hostile(), extremes()] {
        let text = html(&document);
        let page = Html::parse_document(&text);
        let policy = all(&page, "meta[http-equiv=Content-Security-Policy]");
        assert!(policy[0]
            .attr("content")
            .unwrap()
            .starts_with("default-src 'none';"));
        // The policy stands before whatever it is to hold for.
        let head = all(&page, "head > *");
        let at = |name: &str| {
            head.iter()
                .position(|element| element.value().name() == name)
        };
        assert!(at("meta").unwrap() < at("style").unwrap());
        for selector in [
            "script", "img", "link", "iframe", "object", "embed", "base", "form", "use", "image",
            "[src]", "[style]",
        ] {
            assert!(all(&page, selector).is_empty(), "{selector}");
        }
        for element in all(&page, "*") {
            for (name, value) in element.value().attrs() {
                assert!(!name.starts_with("on"), "{name}");
                assert!(name != "href" || value.starts_with('#'), "{value}");
            }
        }
        let sheet = self::text(all(&page, "style")[0]);
        assert!(
            !sheet.contains("url(") && !sheet.contains("@import") && !sheet.contains("@font-face")
        );
    }
}

#[test]
fn foreign_text_is_only_text() {
    let document = hostile();
    let page = Html::parse_document(&html(&document));
    let shown = printable(HOSTILE);
    assert_eq!(text(all(&page, "h1")[0]), shown);
    assert_eq!(text(all(&page, "head > title")[0]), shown);
    for selector in [
        "dt",
        "dd",
        ".lead",
        "section > h2",
        "#part-1 ~ .scroll thead th",
        "svg > title",
        "nav a",
    ] {
        let found = all(&page, selector);
        assert!(!found.is_empty(), "{selector}");
        assert!(
            found.iter().all(|element| text(*element) == shown),
            "{selector}"
        );
    }
    let whole: String = page.root_element().text().collect();
    let bad = |character: char| {
        character.is_control() && character != '\n'
            || ('\u{202a}'..='\u{202e}').contains(&character)
    };
    assert!(!whole.contains(bad));
}

#[test]
fn plots_can_be_read_without_seeing_them() {
    let page = Html::parse_document(&html(&report()));
    let plots = all(&page, "figure > svg");
    assert_eq!(plots.len(), 6, "each for a wide and a narrow screen");
    for plot in plots {
        assert_eq!(plot.attr("role"), Some("img"));
        for id in plot.attr("aria-labelledby").unwrap().split(' ') {
            let told = all(&page, &format!("#{id}"));
            assert!(!text(told[0]).is_empty());
        }
    }
    assert_eq!(all(&page, "figure > figcaption").len(), 3);
    let folded = all(&page, "figure + details table");
    assert_eq!(folded.len(), 3);
    let rows = Selector::parse("tbody tr").unwrap();
    // 3 series of 20 cycles and 2 limits.
    assert_eq!(folded[0].select(&rows).count(), 62);
    for table in all(&page, "table") {
        let cells = |selector| table.select(&Selector::parse(selector).unwrap()).count();
        assert_eq!(
            cells("thead th[scope=col]") * cells("tbody tr"),
            cells("tbody td, tbody th")
        );
        assert_eq!(cells("tbody th[scope=row]"), cells("tbody tr"));
    }
    assert_eq!(all(&page, ".scroll[tabindex='0'][aria-label]").len(), 4);
}

#[test]
fn numbers_stand_right() {
    let page = Html::parse_document(&html(&report()));
    let results = all(&page, "#part-1 + p + .scroll tbody tr");
    let classes = |row: ElementRef<'_>| -> Vec<bool> {
        let cells = row.child_elements();
        cells
            .map(|cell| cell.attr("class") == Some("number"))
            .collect()
    };
    assert_eq!(
        classes(results[1]),
        [false, false, true, true, true, true, true, true]
    );
}

#[test]
fn dark_is_for_screens_only() {
    let sheet = sheet();
    let dark = sheet.find(DARK.ground).unwrap();
    let before = &sheet[..dark];
    let media = before.rfind("@media").unwrap();
    assert!(before[media..].starts_with("@media screen and (prefers-color-scheme:dark)"));
    assert_eq!(sheet.matches(DARK.ground).count(), 1);
    assert!(sheet.contains("@media print"));
    assert!(sheet[sheet.find("@media print").unwrap()..].contains("break-inside:avoid"));
}

#[test]
fn words_of_the_page_have_contrast() {
    let named = |properties: &str| -> Vec<String> {
        let parts = properties.split(';').filter(|part| !part.is_empty());
        parts
            .map(|part| part.split_once(':').unwrap().1.to_owned())
            .collect()
    };
    for (properties, ground) in [(LIGHT_PAGE, LIGHT.ground), (DARK_PAGE, DARK.ground)] {
        for colour in named(properties) {
            assert!(contrast(&colour, ground) >= 4.5, "{colour}");
        }
    }
}
