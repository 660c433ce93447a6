//! Rows as CSV.

/// A header and rows of the same width, kept as CSV.
#[derive(Debug)]
pub(crate) struct Table {
    writer: csv::Writer<Vec<u8>>,
    /// The first error.
    failure: Option<String>,
}

impl Table {
    /// Returns a table without rows.
    pub(crate) fn new<T: Into<String>>(columns: impl IntoIterator<Item = T>) -> Self {
        let mut table = Self {
            writer: csv::Writer::from_writer(Vec::new()),
            failure: None,
        };
        table.row(columns.into_iter().map(Into::into));
        table
    }

    /// Adds a row. Numbers with a fraction are written by [`decimal`].
    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().map(|cell| cell.to_string());
        let written = self.writer.write_record(cells.map(String::into_bytes));
        let flushed = written.and_then(|()| Ok(self.writer.flush()?));
        if let Err(error) = flushed {
            self.failure
                .get_or_insert(format!("a table cannot be written: {error}"));
        }
    }

    /// Returns the table as CSV. It fails if a row had not as many cells as the header.
    pub(crate) fn csv(&self) -> Result<Vec<u8>, String> {
        match &self.failure {
            Some(error) => Err(error.clone()),
            None => Ok(self.writer.get_ref().clone()),
        }
    }
}

/// Writes a number with so many digits after the point; never `-0`, and `-` if there is none.
pub(crate) fn decimal(number: f64, digits: usize) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
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
