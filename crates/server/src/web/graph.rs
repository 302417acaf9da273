//! The graph of groups and what they require, laid out for an SVG template. No I/O.

use super::format::shortened;
use super::group_card::GroupCard;

const WIDTH: usize = 200;
const HEIGHT: usize = 60;
const BETWEEN: usize = 70;
const BELOW: usize = 18;
const BAR: u64 = 176;
/// Letters of a name that fit.
const LONGEST: usize = 24;

/// The dependency graph of the groups: each is to the right of all that it requires.
pub(super) struct Graph {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) boxes: Vec<Node>,
    pub(super) edges: Vec<String>,
}

pub(super) struct Node {
    pub(super) name: String,
    pub(super) shown: String,
    pub(super) state: String,
    pub(super) counts: String,
    pub(super) x: usize,
    pub(super) y: usize,
    /// The parts of its bar: class, from where, how wide.
    pub(super) bar: Vec<(&'static str, u64, u64)>,
}

impl Graph {
    /// The graph; none for a single group.
    pub(super) fn of(cards: &[GroupCard]) -> Option<Self> {
        if cards.len() < 2 {
            return None;
        }
        let required = |card: &GroupCard| -> Vec<usize> {
            let at = |name: &String| cards.iter().position(|other| other.name == *name);
            card.requires.iter().filter_map(at).collect()
        };
        let mut layers = vec![0; cards.len()];
        // No chain is longer than the number of groups; cycles are rejected when the configuration is stored.
        for _ in 0..cards.len() {
            for (n, card) in cards.iter().enumerate() {
                let behind = required(card).into_iter().map(|other| layers[other] + 1).max();
                layers[n] = behind.unwrap_or(0).min(cards.len());
            }
        }
        let mut filled = vec![0; cards.len() + 1];
        let boxes: Vec<Node> = cards
            .iter()
            .zip(&layers)
            .map(|(card, layer)| {
                let (x, y) = (layer * (WIDTH + BETWEEN), filled[*layer] * (HEIGHT + BELOW));
                filled[*layer] += 1;
                let scaled = |part: u64| part * BAR / 1000;
                let bar = card.segments.iter();
                Node {
                    name: card.name.clone(),
                    shown: shortened(&card.name, LONGEST),
                    state: card.state.clone(),
                    counts: match card.members {
                        0 => "no members yet".into(),
                        members => format!("{} of {members}", card.upgraded),
                    },
                    x,
                    y,
                    bar: bar.map(|part| (part.class, scaled(part.x), scaled(part.width).max(1))).collect(),
                }
            })
            .collect();
        let edges = cards.iter().enumerate().flat_map(|(n, card)| {
            let to = (boxes[n].x, boxes[n].y + HEIGHT / 2);
            let edge = |from: usize| {
                let from = (boxes[from].x + WIDTH, boxes[from].y + HEIGHT / 2);
                let bend = BETWEEN / 2;
                format!(
                    "M{} {}C{} {} {} {} {} {}",
                    from.0,
                    from.1,
                    from.0 + bend,
                    from.1,
                    to.0.saturating_sub(bend),
                    to.1,
                    to.0.saturating_sub(7),
                    to.1
                )
            };
            required(card).into_iter().map(edge).collect::<Vec<_>>()
        });
        let edges = edges.collect();
        let width = boxes.iter().map(|node| node.x + WIDTH).max().unwrap_or_default();
        let height = boxes.iter().map(|node| node.y + HEIGHT).max().unwrap_or_default();
        Some(Self { width, height, boxes, edges })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use refit_proto::rollouts::v1 as wire;

    use super::*;

    #[test]
    fn a_group_stands_to_the_right_of_all_that_it_requires() {
        let card = |name: &str, requires: &[&str]| {
            let requires = requires.iter().map(|name| (*name).to_owned()).collect();
            let group = wire::Group { name: name.into(), requires, ..Default::default() };
            GroupCard::of(&group, Timestamp::UNIX_EPOCH)
        };
        // In an order in which the last comes first.
        let cards =
            [card("d", &["b", "c"]), card("c", &["b"]), card("b", &["a"]), card("a", &[]), card("e", &[])];
        let graph = Graph::of(&cards).unwrap();
        let x = |name: &str| graph.boxes.iter().find(|node| node.name == name).unwrap().x;
        assert!(x("a") < x("b") && x("b") < x("c") && x("c") < x("d") && x("e") == x("a"));
        assert_eq!(graph.edges.len(), 4);
        let mut places: Vec<_> = graph.boxes.iter().map(|node| (node.x, node.y)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 5, "none covers another");
        assert!(Graph::of(&cards[..1]).is_none());
        let circle = [card("a", &["b"]), card("b", &["a"])];
        assert!(Graph::of(&circle).is_some(), "it ends");
    }
}
