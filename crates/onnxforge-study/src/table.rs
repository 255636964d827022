//! Tables of results, for documents, pages and programs.

use onnxforge_figures::escaped;
use serde::Serialize;

/// What stands in a cell.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number, with how many digits after the point it is shown.
    Number {
        /// The number.
        value: f64,
        /// Digits after the point; none below zero: then a few significant ones.
        #[serde(skip)]
        digits: i8,
    },
}

impl Cell {
    /// A number of things.
    pub fn count(value: impl Into<f64>) -> Self {
        Self::number(Some(value.into()), 0)
    }

    /// A number with some digits after the point; a dash where there is none.
    pub fn number(value: Option<f64>, digits: i8) -> Self {
        // A sum of nothing is −0.
        value.map_or_else(|| Self::Text("–".to_owned()), |value| Self::Number { value: value + 0.0, digits })
    }

    /// A small difference, in scientific notation.
    pub fn small(value: Option<f64>) -> Self {
        Self::number(value, -1)
    }

    /// Yes, no, or not known.
    pub fn answer(value: Option<bool>) -> Self {
        Self::Text(value.map_or("–", |yes| if yes { "yes" } else { "no" }).to_owned())
    }

    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number { value, .. } if *value == 0.0 => "0".to_owned(),
            Self::Number { value, digits: ..0 } => format!("{value:.1e}"),
            Self::Number { value, digits } => format!("{value:.*}", *digits as usize),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Number { .. })
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// A table with a heading.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    pub heading: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(title: impl Into<String>, heading: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { title: title.into(), heading: heading.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// As part of a Markdown document.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let plain = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let mut text = format!("**{}**\n\n", plain(&self.title));
        text += &line(self.heading.iter().map(|name| plain(name)).collect());
        let is_number =
            |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(Cell::is_number));
        let rule = |column| if is_number(column) { "---:" } else { "---" }.to_owned();
        text += &line((0..self.heading.len()).map(rule).collect());
        for row in &self.rows {
            text += &line(row.iter().map(|cell| plain(&cell.shown())).collect());
        }
        text + "\n"
    }

    /// As part of a page; its script sorts it by columns.
    pub fn html(&self) -> String {
        let mut text = format!(
            "<figure><figcaption>{}</figcaption><div class=\"scroll\"><table><thead><tr>",
            escaped(&self.title)
        );
        for name in &self.heading {
            text += &format!("<th scope=\"col\"><button type=\"button\">{}</button></th>", escaped(name));
        }
        text += "</tr></thead><tbody>";
        for row in &self.rows {
            text += "<tr>";
            for cell in row {
                match cell {
                    Cell::Number { value, .. } => {
                        text += &format!(
                            "<td class=\"number\" data-value=\"{value}\">{}</td>",
                            escaped(&cell.shown())
                        );
                    }
                    Cell::Text(words) => text += &format!("<td>{}</td>", escaped(words)),
                }
            }
            text += "</tr>";
        }
        text + "</tbody></table></div></figure>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_what_they_were_given() {
        let mut table = Table::new("a | b", ["model", "nodes", "difference"]);
        table.row(vec!["x<y|z".into(), Cell::count(3), Cell::small(Some(2.5e-7))]);
        table.row(vec!["w".into(), Cell::number(None, 1), Cell::small(Some(0.0))]);
        assert_eq!(
            table.markdown(),
            "**a \\| b**\n\n| model | nodes | difference |\n| --- | ---: | ---: |\n| x<y\\|z | 3 | 2.5e-7 |\n| w | – | 0 |\n\n"
        );
        let html = table.html();
        assert!(html.contains("x&lt;y|z") && html.contains("data-value=\"3\""));
    }
}
