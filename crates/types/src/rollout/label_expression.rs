//! Label expressions: the subset of CEL that is accepted, compiled to a tree that is cheap to evaluate.

use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use cel::parser::Parser;

use super::expression_guard;
use super::selector::{NotAnExpression, Unanswered};
use crate::Labels;

/// What an expression may contain. CEL can do far more; a selector should be obvious to its readers, and cheap to
/// evaluate for each host of a large fleet.
const ALLOWED: &str = "expected labels[\"NAME\"] or labels.NAME compared with texts by ==, !=, in, startsWith, \
    endsWith or contains, has(labels.NAME), \"NAME\" in labels, true and false, joined by &&, ||, ! and parentheses";

/// A question about labels, as it is asked of each host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LabelExpression {
    Constant(bool),
    Present(Box<str>),
    Equal(Text, Text),
    OneOf(Text, Vec<Text>),
    Affix(Affix, Text, Text),
    Not(Box<LabelExpression>),
    All(Vec<LabelExpression>),
    Any(Vec<LabelExpression>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Affix {
    Start,
    End,
    Anywhere,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    Label(Box<str>),
    Literal(Box<str>),
}

impl LabelExpression {
    pub(super) fn parse(source: &str) -> Result<Self, NotAnExpression> {
        expression_guard::check(source).map_err(|problem| refused(source, &problem))?;
        let parsed = Parser::new().parse(source).map_err(|errors| {
            let problem = errors.errors.first().map_or("it ends too early".into(), |error| {
                let message: String = error.msg.chars().take(120).collect();
                format!("at character {}: {message}", error.pos.1 + 1)
            });
            refused(source, &problem)
        })?;
        lower(&parsed.expr).map_err(|problem| refused(source, &problem))
    }

    /// Whether it is true of these labels, by the rules of CEL.
    pub(super) fn of(&self, labels: &Labels) -> Result<bool, Unanswered> {
        match self {
            Self::Constant(answer) => Ok(*answer),
            Self::Present(name) => Ok(labels.get(name).is_some()),
            Self::Equal(left, right) => Ok(left.of(labels)? == right.of(labels)?),
            Self::OneOf(text, list) => {
                let text = text.of(labels)?;
                let list = list.iter().map(|one| one.of(labels)).collect::<Result<Vec<_>, _>>()?;
                Ok(list.contains(&text))
            }
            Self::Affix(affix, text, part) => {
                let (text, part) = (text.of(labels)?, part.of(labels)?);
                Ok(match affix {
                    Affix::Start => text.starts_with(part),
                    Affix::End => text.ends_with(part),
                    Affix::Anywhere => text.contains(part),
                })
            }
            Self::Not(test) => test.of(labels).map(|answer| !answer),
            Self::All(tests) => settled(tests, labels, false),
            Self::Any(tests) => settled(tests, labels, true),
        }
    }
}

/// Short-circuits: one part with the settling answer is enough; otherwise every part must have an answer.
fn settled(tests: &[LabelExpression], labels: &Labels, settling: bool) -> Result<bool, Unanswered> {
    let mut unanswered = None;
    for test in tests {
        match test.of(labels) {
            Ok(answer) if answer == settling => return Ok(settling),
            Ok(_) => {}
            Err(error) => unanswered = unanswered.or(Some(error)),
        }
    }
    unanswered.map_or(Ok(!settling), Err)
}

impl Text {
    fn of<'l>(&'l self, labels: &'l Labels) -> Result<&'l str, Unanswered> {
        match self {
            Self::Literal(text) => Ok(text),
            Self::Label(name) => labels.get(name).ok_or_else(|| Unanswered { label: name.clone() }),
        }
    }
}

fn refused(source: &str, problem: &str) -> NotAnExpression {
    let shown: String = source.chars().take(80).collect();
    NotAnExpression(format!("{shown:?} is not an expression over labels: {problem}; {ALLOWED}"))
}

fn lower(expression: &Expr) -> Result<LabelExpression, String> {
    match expression {
        Expr::Literal(LiteralValue::Boolean(answer)) => Ok(LabelExpression::Constant(*answer.inner())),
        Expr::Select(select) if select.test => match &select.operand.expr {
            Expr::Ident(name) if name == "labels" => {
                Ok(LabelExpression::Present(select.field.as_str().into()))
            }
            _ => Err("has() asks for something other than a label".into()),
        },
        Expr::Call(call) => lower_call(call),
        other => match text(other) {
            Ok(_) => Err("a text is neither true nor false".into()),
            Err(problem) => Err(problem),
        },
    }
}

fn lower_call(call: &CallExpr) -> Result<LabelExpression, String> {
    let arguments: Vec<&Expr> = call.args.iter().map(|argument| &argument.expr).collect();
    let affix = |affix, target| Ok(LabelExpression::Affix(affix, text(target)?, text(arguments[0])?));
    let target = call.target.as_deref().map(|target| &target.expr);
    match (call.func_name.as_str(), target, &arguments[..]) {
        (operators::LOGICAL_AND, None, parts) => {
            Ok(LabelExpression::All(parts.iter().map(|part| lower(part)).collect::<Result<_, _>>()?))
        }
        (operators::LOGICAL_OR, None, parts) => {
            Ok(LabelExpression::Any(parts.iter().map(|part| lower(part)).collect::<Result<_, _>>()?))
        }
        (operators::LOGICAL_NOT, None, [part]) => Ok(LabelExpression::Not(Box::new(lower(part)?))),
        (operators::EQUALS, None, [left, right]) => Ok(LabelExpression::Equal(text(left)?, text(right)?)),
        (operators::NOT_EQUALS, None, [left, right]) => {
            Ok(LabelExpression::Not(Box::new(LabelExpression::Equal(text(left)?, text(right)?))))
        }
        (operators::IN, None, [one, Expr::Ident(name)]) if name == "labels" => match text(one)? {
            Text::Literal(name) => Ok(LabelExpression::Present(name)),
            Text::Label(_) => Err("the name before \"in labels\" is not a text".into()),
        },
        (operators::IN, None, [one, Expr::List(list)]) => {
            let list = list.elements.iter().map(|element| text(&element.expr)).collect::<Result<_, _>>()?;
            Ok(LabelExpression::OneOf(text(one)?, list))
        }
        ("startsWith", Some(target), [_]) => affix(Affix::Start, target),
        ("endsWith", Some(target), [_]) => affix(Affix::End, target),
        ("contains", Some(target), [_]) => affix(Affix::Anywhere, target),
        (operators::INDEX, None, _) => Err("a text is neither true nor false".into()),
        (name, _, _) => Err(format!("{name:?} is not known here, or not used like this")),
    }
}

fn text(expression: &Expr) -> Result<Text, String> {
    let is_labels = |expression: &Expr| matches!(expression, Expr::Ident(name) if name == "labels");
    match expression {
        Expr::Literal(LiteralValue::String(literal)) => Ok(Text::Literal(literal.inner().into())),
        Expr::Select(select) if !select.test && is_labels(&select.operand.expr) => {
            Ok(Text::Label(select.field.as_str().into()))
        }
        Expr::Call(call) if call.func_name == operators::INDEX => match &call.args[..] {
            [map, name] if is_labels(&map.expr) => match &name.expr {
                Expr::Literal(LiteralValue::String(name)) => Ok(Text::Label(name.inner().into())),
                _ => Err("the name of a label is not a text".into()),
            },
            _ => Err("only labels have names in brackets".into()),
        },
        Expr::Ident(name) if name == "labels" => Err("labels stands without a name".into()),
        Expr::Ident(name) => Err(format!("{name:?} is not known here")),
        _ => Err("a label or a text is compared with something else".into()),
    }
}
