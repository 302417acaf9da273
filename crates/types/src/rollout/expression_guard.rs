//! Checks a label expression before it is parsed: rejects what would overflow the parser's stack, and characters that
//! no allowed expression contains.

/// Longer expressions are refused.
const LONGEST: usize = 1024;
/// How deep parts may stand in each other: brackets, and operators in a row.
const DEEPEST: usize = 24;

/// Refuses a text that is too long, too deep, or holds signs that no allowed expression has. Texts in quotes
/// may hold anything; those that are raw, in triple quotes or of bytes are not needed and not allowed.
pub(super) fn check(source: &str) -> Result<(), String> {
    if source.len() > LONGEST {
        return Err(format!("it is longer than the {LONGEST} bytes that are allowed"));
    }
    if source.trim().is_empty() {
        return Err("it is empty".into());
    }
    let mut signs = source.char_indices().peekable();
    let mut depth = Depth { levels: vec![0] };
    let mut last = ' ';
    while let Some((at, sign)) = signs.next() {
        let problem =
            |what: String| Err(format!("at character {}: {what}", source[..at].chars().count() + 1));
        match sign {
            '"' | '\'' => {
                if last.is_ascii_alphanumeric() || matches!(last, '_' | '"' | '\'') {
                    return problem("a text in quotes directly behind something else".into());
                }
                let mut is_escaped = false;
                let end = signs.find(|(_, inner)| {
                    let ends = *inner == sign && !is_escaped;
                    is_escaped = *inner == '\\' && !is_escaped;
                    ends
                });
                if end.is_none() {
                    return problem("a text in quotes has no end".into());
                }
            }
            '(' | '[' => depth.open(),
            ')' | ']' => depth.close(),
            ',' | '&' | '|' => depth.begin_again(),
            '.' | '=' | '!' => depth.deepen(),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => {
                if !last.is_ascii_alphanumeric() && last != '_' {
                    depth.deepen();
                }
            }
            ' ' | '\t' | '\r' | '\n' => {}
            other => return problem(format!("{other:?} has no place in it")),
        }
        if depth.total() > DEEPEST {
            return problem(format!("its parts stand more than {DEEPEST} deep in each other"));
        }
        last = sign;
    }
    Ok(())
}

/// How deep a parser is at most: for each open bracket, what stands in a row before it.
struct Depth {
    levels: Vec<usize>,
}

impl Depth {
    fn open(&mut self) {
        self.levels.push(1);
    }

    fn close(&mut self) {
        if self.levels.len() > 1 {
            self.levels.pop();
        }
        self.deepen();
    }

    fn deepen(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            *level += 1;
        }
    }

    fn begin_again(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            *level = (*level).min(1);
        }
    }

    fn total(&self) -> usize {
        self.levels.iter().sum()
    }
}
