//! Which hosts a group takes, by expressions over two sets of labels.

use std::fmt;
use std::str::FromStr;

use super::label_expression::LabelExpression;
use crate::Labels;

/// Which hosts a group takes: those for which all of its expressions hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    /// Over the labels of the host as a resource.
    pub node_labels_expression: Option<Expression>,
    /// Over the labels of the agent.
    pub instance_labels_expression: Option<Expression>,
}

impl Selector {
    /// Whether a host with these labels is selected.
    pub fn selects(&self, node_labels: &Labels, instance_labels: &Labels) -> bool {
        let holds = |expression: &Option<Expression>, labels| {
            expression.as_ref().is_none_or(|expression| expression.holds(labels))
        };
        holds(&self.node_labels_expression, node_labels)
            && holds(&self.instance_labels_expression, instance_labels)
    }
}

/// A question about labels, in CEL: `labels["environment"] == "staging"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    source: String,
    test: LabelExpression,
}

/// A text that is no such question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAnExpression(pub(super) String);

/// The expression cannot be evaluated, because it depends on an absent label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no label {label:?}")]
pub struct Unanswered {
    pub(super) label: Box<str>,
}

impl Unanswered {
    /// The label that is absent.
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl Expression {
    /// What the operator wrote.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it is true of these labels; an absent label makes it false.
    pub fn holds(&self, labels: &Labels) -> bool {
        self.evaluate(labels).unwrap_or(false)
    }

    /// Like [`Expression::holds`], with the reason if it does not hold. As in CEL, a part that cannot be evaluated
    /// counts only if the others do not settle the result.
    pub fn evaluate(&self, labels: &Labels) -> Result<bool, Unanswered> {
        self.test.of(labels)
    }
}

impl FromStr for Expression {
    type Err = NotAnExpression;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { source: text.to_owned(), test: LabelExpression::parse(text)? })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}
