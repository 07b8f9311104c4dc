use super::super::examples::{extremes, hostile, report};
use super::*;

/// Cells of a line of a table; bars that are escaped part none.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => cells.last_mut().unwrap().extend(characters.next()),
            '|' => cells.push(String::new()),
            _ => cells.last_mut().unwrap().push(character),
        }
    }
    let inner = cells[1..cells.len() - 1].iter();
    inner.map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn tables_have_as_many_cells_in_each_row_whatever_is_in_them() {
    for document in [report(), hostile(), extremes()] {
        let text = markdown(&document);
        let mut lines = text.lines().peekable();
        let mut tables = 0;
        while let Some(line) = lines.next() {
            let is_rule = lines.peek().is_some_and(|next| next.starts_with("| -"));
            if !(line.starts_with('|') && is_rule) {
                continue;
            }
            tables += 1;
            let count = cells(line).len();
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                assert_eq!(cells(row).len(), count, "{row}");
            }
        }
        let wanted = document
            .sections
            .iter()
            .filter(|part| part.plot.is_some() || part.table.is_some());
        assert_eq!(tables, wanted.count());
    }
}

#[test]
fn numbers_are_aligned_in_what_is_shown_and_in_the_source() {
    let text = markdown(&report());
    let at = text
        .lines()
        .position(|line| line.starts_with("| variant"))
        .unwrap();
    let lines: Vec<&str> = text.lines().skip(at).take(5).collect();
    let rules = cells(lines[1]);
    let right: Vec<bool> = rules.iter().map(|rule| rule.ends_with(':')).collect();
    assert_eq!(right, [false, false, true, true, true, true, true, true]);
    let widths: Vec<usize> = lines.iter().map(|line| measure_text_width(line)).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{widths:?}");
}

#[test]
fn foreign_text_formats_nothing_and_calls_nobody() {
    for (text, shown) in [
        ("a|b", "a\\|b"),
        (
            "*bold* `code` [x](y) ~~",
            "\\*bold\\* \\`code\\` \\[x\\](y) \\~\\~",
        ),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("CUDASNAP_PAGES _x_", "CUDASNAP_PAGES \\_x\\_"),
        (
            "ask @somebody about #12",
            "ask @<!-- -->somebody about #<!-- -->12",
        ),
        ("https://x", "https:<!-- -->//x"),
        ("www.x.org", "www.<!-- -->x.org"),
        ("- item", "\\- item"),
        ("12. item", "12\\. item"),
        ("# heading", "\\# heading"),
        ("2.51 GB/s", "2.51 GB/s"),
        ("-3", "-3"),
        ("---", "\\---"),
    ] {
        assert_eq!(escaped(text), shown);
    }
    let text = markdown(&hostile());
    let code = |line: &&str| !line.contains('█') && !line.contains('▒') && !line.contains("script");
    for line in text.lines().filter(|line| !code(line)) {
        assert!(
            line.contains("&lt;script&gt;") || line.contains("<script>"),
            "{line}"
        );
    }
    // Only in code, where it is text.
    let fence = text.find("```text").unwrap();
    assert!(!text[..fence].contains("<script>"));
}

#[test]
fn a_code_block_cannot_be_left() {
    let block = code("a ``` b ```` c");
    assert!(block.starts_with("`````text\n") && block.ends_with("\n`````"));
}

#[test]
fn long_tables_are_folded() {
    let text = markdown(&report());
    assert!(text.contains("<details><summary>62 rows</summary>\n\n| series"));
    assert_eq!(
        text.matches("<details>").count(),
        text.matches("</details>").count()
    );
}
