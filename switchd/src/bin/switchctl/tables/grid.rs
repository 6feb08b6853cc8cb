//! A table as text: columns, alignment, cells.

use comfy_table::{CellAlignment, Table, presets};

/// Names of columns, and rows. Columns whose values are aligned to the right begin with `>`.
pub(super) type Rows = (&'static [&'static str], Vec<Vec<String>>);

/// A table of these rows, or that there are none.
pub(super) fn draw(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return "none\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|name| name.trim_start_matches('>')));
    for row in rows {
        table.add_row(row);
    }
    for (place, name) in columns.iter().enumerate() {
        if let Some(column) = table.column_mut(place)
            && name.starts_with('>')
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().fold(String::new(), |mut text, line| {
        text.push_str(line.trim_end());
        text.push('\n');
        text
    })
}

pub(super) fn or_dash(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| "-".to_owned())
}

pub(super) fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}
