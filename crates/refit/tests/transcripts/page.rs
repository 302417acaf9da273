//! Parses a documentation page into commands, expected output, and actions of hosts in between.

/// What is next on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// `<!-- until: … -->`: something that the reader does not type.
    Direction {
        /// Where it stands, from 1.
        line: usize,
        /// What is between the marks.
        text: String,
    },
    /// A line behind `$` in a block of `console`, and what is shown below it.
    Command {
        /// Where it stands, from 1.
        line: usize,
        /// What is behind the `$`.
        typed: String,
        /// The lines up to the next `$`, or to the end of the block.
        shown: Vec<String>,
    },
}

/// A page whose transcripts can be replaced.
pub struct Page {
    /// Each line of the page, and those that now stand in its place.
    lines: Vec<(String, Vec<String>)>,
}

/// Comments that begin so are directions; all others are only comments.
const DIRECTIONS: [&str; 4] = ["hosts:", "mend:", "until:", "closed:"];

impl Page {
    /// Takes a page apart.
    pub fn read(text: &str) -> Self {
        Self { lines: text.lines().map(|line| (line.to_owned(), vec![line.to_owned()])).collect() }
    }

    /// Everything that happens on it, in order.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut in_console = false;
        for (n, (text, _)) in self.lines.iter().enumerate() {
            let line = n + 1;
            if text.starts_with("```") {
                in_console = text == "```console";
                continue;
            }
            if let Some(direction) = direction(text).filter(|_| !in_console) {
                steps.push(Step::Direction { line, text: direction.into() });
            } else if let Some(typed) = text.strip_prefix("$ ").filter(|_| in_console) {
                steps.push(Step::Command { line, typed: typed.into(), shown: Vec::new() });
            } else if let Some(Step::Command { shown, .. }) = steps.last_mut().filter(|_| in_console) {
                shown.push(text.clone());
            }
        }
        steps
    }

    /// Puts what was printed in the place of what was shown below a command. Lines of the same shape stay.
    pub fn replace(&mut self, line: usize, shown: &[String], printed: &[String]) {
        if crate::shape::difference(shown, printed).is_none() {
            return;
        }
        for (_, below) in &mut self.lines[line..line + shown.len()] {
            below.clear();
        }
        self.lines[line - 1].1.extend_from_slice(printed);
    }

    /// The page as it is now.
    pub fn text(&self) -> String {
        self.lines.iter().flat_map(|(_, lines)| lines).map(|line| format!("{line}\n")).collect()
    }
}

fn direction(line: &str) -> Option<&str> {
    let text = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    DIRECTIONS.iter().any(|known| text.starts_with(known)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "Prose\n$ not a command\n<!-- until: it rains -->\n<!-- a note -->\n```console\n\
        $ refitctl one\nfirst\n\nsecond\n$ refitctl two\n```\n```yaml\n$ neither\n```\n";

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_page_is_taken_apart() {
        let command =
            |line, typed: &str, shown: &str| Step::Command { line, typed: typed.into(), shown: lines(shown) };
        assert_eq!(
            Page::read(PAGE).steps(),
            [
                Step::Direction { line: 3, text: "until: it rains".into() },
                command(6, "refitctl one", "first\n\nsecond"),
                command(10, "refitctl two", ""),
            ]
        );
    }

    #[test]
    fn what_is_printed_takes_the_place_of_what_was_shown() {
        let mut page = Page::read(PAGE);
        page.replace(6, &lines("first\n\nsecond"), &lines("other"));
        page.replace(10, &[], &lines("more"));
        let expected = PAGE.replace("first\n\nsecond", "other").replace("two\n", "two\nmore\n");
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn what_differs_only_from_run_to_run_is_left() {
        let text = "```console\n$ date\n2026-01-02 03:04:05 UTC\n```\n";
        let mut page = Page::read(text);
        page.replace(2, &lines("2026-01-02 03:04:05 UTC"), &lines("2027-11-12 13:14:15 UTC"));
        assert_eq!(page.text(), text);
    }
}
