//! The migrations of all releases, one file each. A released file is never changed, renamed or moved;
//! the tests pin the hash of each.

#[path = "0001_channels_v2.rs"]
mod m0001;

use crate::Migration;

macro_rules! migration {
    ($number:literal, $name:literal, $file:literal, $module:ident) => {
        Migration {
            number: $number,
            name: $name,
            source: include_str!($file),
            run: |store| Box::pin($module::run(store)),
        }
    };
}

pub(crate) fn all() -> Vec<Migration> {
    vec![migration!(1, "channels_v2", "0001_channels_v2.rs", m0001)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line for each released migration. A line is added with its migration and never edited.
    const PINNED: [(&str, &str); 1] =
        [("0001_channels_v2.rs", "1f9bc880b4b40fc1c2ca92fc936a213f8ade6495ab3ebb0ddaf14238a8ec195c")];

    #[test]
    fn numbers_are_contiguous_and_every_file_is_registered() {
        let registered: Vec<String> =
            all().iter().map(|m| format!("{:04}_{}.rs", m.number, m.name)).collect();
        let numbers: Vec<u32> = all().iter().map(|m| m.number).collect();
        assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/released");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "mod.rs")
            .collect();
        files.sort();
        assert_eq!(files, registered);
    }

    #[test]
    fn released_migrations_are_unaltered() {
        let found: Vec<(String, String)> =
            all().iter().map(|m| (format!("{:04}_{}.rs", m.number, m.name), m.checksum().0)).collect();
        let pinned: Vec<(String, String)> =
            PINNED.iter().map(|(file, hash)| ((*file).to_owned(), (*hash).to_owned())).collect();
        assert_eq!(found, pinned, "a released migration was changed: add a new one instead");
    }
}
