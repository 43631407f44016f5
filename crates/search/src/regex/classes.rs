//! [`Weigher`]: estimates the cost of compiling a pattern's character classes from its syntax alone.
//!
//! The size limit of an automaton acts only after its classes are built. Before that, 64 KiB of `\pL` expand to 100
//! MB of ranges, and `(?i)` walks three billion code points. So each class is weighed first. A named class weighs
//! as much as its ranges, which are looked up once. Where case may be ignored, the class also weighs as much as its
//! code points.

use regex_syntax::ast::{
    Ast, ClassPerl, ClassSetItem, ClassUnicode, Flag, Flags, FlagsItemKind, Span, Visitor, visit,
};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Class, HirKind};
use std::collections::HashMap;

/// Maximum weight of the classes of one pattern: about 100 ms and 30 MB of ranges.
pub(crate) const CLASSES_WEIGHT_MAX: u64 = 32 << 20;
/// Weight of a range: its bytes in all the places where ranges are kept, copied and sorted.
const RANGE_WEIGHT: u64 = 64;
/// Weight of looking up a class by name.
const LOOKUP_WEIGHT: u64 = 1 << 10;

/// The weight of the classes in `ast`, the syntax tree of `pattern`. `unicode` and `nocase` are the flags at the
/// start of the pattern.
pub(super) fn weigh(pattern: &str, ast: &Ast, unicode: bool, nocase: bool) -> u64 {
    let weigher =
        Weigher { pattern, named: HashMap::new(), ranges: 0, points: 0, others: 0, unicode, nocase };
    match visit(ast, weigher) {
        Ok(weight) => weight,
        Err(never) => match never {},
    }
}

struct Weigher<'p> {
    pattern: &'p str,
    /// Number of ranges and number of code points of each named class, by the class's text in the pattern.
    named: HashMap<&'p str, (u64, u64)>,
    ranges: u64,
    points: u64,
    others: u64,
    /// True when Unicode rules may apply somewhere in the pattern.
    unicode: bool,
    /// True when case may be ignored somewhere in the pattern.
    nocase: bool,
}

/// The error type of a function that cannot fail.
enum Never {}

impl<'p> Weigher<'p> {
    fn flags(&mut self, flags: &Flags) {
        let sets = |flag| flags.items.iter().any(|item| item.kind == FlagsItemKind::Flag(flag));
        self.unicode |= sets(Flag::Unicode);
        self.nocase |= sets(Flag::CaseInsensitive);
    }
    fn named(&mut self, span: &Span, ast: impl FnOnce() -> Ast) {
        let Some(text) = self.pattern.get(span.start.offset..span.end.offset) else { return };
        let (ranges, points) = *self.named.entry(text).or_insert_with(|| {
            self.others += LOOKUP_WEIGHT;
            // Stop looking up names once the pattern is too heavy: it is refused anyway.
            if self.others > CLASSES_WEIGHT_MAX { (0, 0) } else { size(text, &ast()) }
        });
        self.ranges += ranges;
        self.points += points;
    }
    fn unicode_class(&mut self, class: &ClassUnicode) {
        self.named(&class.span, || Ast::class_unicode(class.clone()));
    }
    fn perl_class(&mut self, class: &ClassPerl) {
        self.named(&class.span, || Ast::class_perl(class.clone()));
    }
}

/// Number of ranges and number of code points of a class. Both are 0 for an unknown class, which the compiler refuses
/// later.
fn size(text: &str, ast: &Ast) -> (u64, u64) {
    let made = TranslatorBuilder::new().unicode(true).utf8(false).build().translate(text, ast);
    match made.as_ref().map(|hir| hir.kind()) {
        Ok(HirKind::Class(Class::Unicode(class))) => {
            let points = class.ranges().iter().map(|range| range.len() as u64).sum();
            (class.ranges().len() as u64, points)
        }
        _ => (1, 1),
    }
}

impl Visitor for Weigher<'_> {
    type Output = u64;
    type Err = Never;

    fn finish(self) -> Result<u64, Never> {
        if !self.unicode {
            return Ok(self.others);
        }
        let points = if self.nocase { self.points } else { 0 };
        Ok(self.others.saturating_add(points).saturating_add(self.ranges.saturating_mul(RANGE_WEIGHT)))
    }
    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Never> {
        match ast {
            Ast::Flags(set) => self.flags(&set.flags),
            Ast::Group(group) => group.flags().into_iter().for_each(|flags| self.flags(flags)),
            Ast::ClassUnicode(class) => self.unicode_class(class),
            Ast::ClassPerl(class) => self.perl_class(class),
            _ => {}
        }
        Ok(())
    }
    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Never> {
        match item {
            ClassSetItem::Unicode(class) => self.unicode_class(class),
            ClassSetItem::Perl(class) => self.perl_class(class),
            ClassSetItem::Range(range) => {
                let (first, last) = (u64::from(u32::from(range.start.c)), u64::from(u32::from(range.end.c)));
                self.points += last.saturating_sub(first) + 1;
                self.ranges += 1;
            }
            // Inserting each item among the earlier items costs quadratic time.
            ClassSetItem::Union(union) => self.others += (union.items.len() as u64).pow(2),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(pattern: &str) -> u64 {
        let ast = regex_syntax::ast::parse::Parser::new().parse(pattern).expect("a pattern");
        weigh(pattern, &ast, false, false)
    }

    #[test]
    fn classes_weigh_their_ranges_and_code_points() {
        assert!(weight(r"\w+\d[a-z]").abs_diff(0) < 3 * LOOKUP_WEIGHT, "bytes weigh nothing");
        let (one, ten) = (weight(r"(?u)\pL"), weight(&format!("(?u){}", r"\pL".repeat(10))));
        assert!(one > 500 * RANGE_WEIGHT && ten > 9 * (one - LOOKUP_WEIGHT) && ten < 10 * one, "{one} {ten}");
        assert!(weight(r"(?iu)\pL") > one + 100_000, "code points count where case does not");
        assert!(weight(r"a(b(?i:c(?u:[\x{0}-\x{10FFFF}])))") > 1_000_000);
        assert!(weight(r"(?u)[\x{0}-\x{10FFFF}]") < 1_000);
        let letters: String = (0..20_000u32).filter_map(|i| char::from_u32(0x4e00 + i)).collect();
        assert!(weight(&format!("[{letters}]")) > CLASSES_WEIGHT_MAX);
        assert!(
            weight(r"(?iu)\p{Greek}+\s*\pL{3,}[\w--\d]\b\P{Lu}") < CLASSES_WEIGHT_MAX / 8,
            "what one writes"
        );
    }
}
