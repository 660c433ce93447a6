//! Rows, which become CSV.

/// A header and rows of the same width.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table without rows.
    pub(crate) fn new<T: Into<String>>(columns: impl IntoIterator<Item = T>) -> Self {
        Self {
            rows: vec![columns.into_iter().map(Into::into).collect()],
        }
    }

    /// Adds a row. Numbers with a fraction are written by [`decimal`].
    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows
            .push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// Returns the table as CSV. It fails for a row that has not as many cells as the header.
    pub(crate) fn csv(&self) -> Result<Vec<u8>, String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            writer
                .write_record(row)
                .map_err(|error| format!("a table cannot be written: {error}"))?;
        }
        writer
            .into_inner()
            .map_err(|error| format!("a table cannot be written: {error}"))
    }
}

/// Writes a number with so many digits after the point; never `-0`.
pub(crate) fn decimal(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|byte| matches!(byte, b'0' | b'.')) => rest.to_owned(),
        _ => text,
    }
}

/// Writes `part / whole` with six digits after the point; `-` if there is no whole.
pub(crate) fn parts(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    decimal(part as f64 / whole as f64, 6)
}
