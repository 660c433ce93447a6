//! The files that a figure makes.

use super::table::Table;
use crate::chart::Picture;

/// Files with names, in memory.
#[derive(Debug, Default)]
pub(crate) struct Products(pub(super) Vec<(String, Vec<u8>)>);

impl Products {
    /// Adds a table as `<name>.csv`.
    pub(crate) fn table(&mut self, name: &str, table: &Table) -> Result<(), String> {
        self.0.push((format!("{name}.csv"), table.csv()?));
        Ok(())
    }

    /// Adds a picture as `<name>.svg`.
    pub(crate) fn picture(&mut self, name: &str, picture: &Picture) -> Result<(), String> {
        self.0
            .push((format!("{name}.svg"), picture.svg()?.into_bytes()));
        Ok(())
    }
}
