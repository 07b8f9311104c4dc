//! CSV as RFC 4180 has it: a header line, lines that end with CR LF. Foreign text cannot become a formula of the spreadsheet that opens
//! the file.

use crate::foreign_text::printable;

/// These rows below this header.
pub fn csv<Name: AsRef<[u8]>>(
    header: impl IntoIterator<Item = Name>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut writer = ::csv::WriterBuilder::new()
        .terminator(::csv::Terminator::CRLF)
        .from_writer(Vec::new());
    // Writing to memory does not fail, and all rows are equally long.
    let _ = writer.write_record(header);
    for row in rows {
        let _ = writer.write_record(row);
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Foreign text as a cell: printable, and no formula.
pub fn harmless(text: &str) -> String {
    let text = printable(text);
    // The wide ones are formulas in some languages' versions too.
    let starts = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    if text.trim_start().starts_with(starts) {
        format!("'{text}")
    } else {
        text
    }
}
