//! Reading a whole range page by page, within the bounds of a page. Everything that lists what is stored goes by it.

use crate::{Backend, Item, KeyRange, MAX_PAGE_ITEMS, Result, Revision};

/// The items of a range, a page at a time. The pages are of different moments: whoever must not miss a change in between
/// watches the range after [`Scan::since`].
#[derive(Debug)]
pub struct Scan<'a> {
    backend: &'a dyn Backend,
    /// What was not read yet; nothing behind the last page.
    rest: Option<KeyRange>,
    page_items: usize,
    since: Option<Revision>,
}

impl dyn Backend {
    /// Reads a whole range in key order, page by page.
    pub fn scan(&self, range: KeyRange) -> Scan<'_> {
        Scan { backend: self, rest: Some(range), page_items: MAX_PAGE_ITEMS, since: None }
    }
}

impl Scan<'_> {
    /// Reads smaller pages: for whoever can only work on so many items at once.
    pub fn by(self, page_items: usize) -> Self {
        Self { page_items, ..self }
    }

    /// The items of the next page, or nothing behind the last one. A page that failed is read again by the next call.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Item>>> {
        let Some(range) = &self.rest else { return Ok(None) };
        let page = self.backend.range(range, self.page_items).await?;
        self.since.get_or_insert(page.revision);
        self.rest = page.items.last().filter(|_| page.more).map(|last| range.after(&last.key));
        Ok(Some(page.items).filter(|items| !items.is_empty()))
    }

    /// The moment of the first page: a watch after it tells every change that the pages may lack.
    pub fn since(&self) -> Revision {
        self.since.unwrap_or_default()
    }
}
