//! Classes (plans) by index, stable by name. Knows no org and no key.

use crate::id::ClassId;
use crate::policy::{ClassPolicy, Entitlement};

/// The classes there are and were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    /// By index; one that left the policy stays, so that an index never means something else.
    known: Vec<Class>,
    /// Class of those that name none.
    default: Option<ClassId>,
}

#[derive(Clone, Debug)]
struct Class {
    policy: ClassPolicy,
    /// In the policy now.
    present: bool,
}

impl Classes {
    /// Takes new classes; `default` is one of them by name.
    pub(crate) fn obey(&mut self, classes: Vec<ClassPolicy>, default: Option<&str>) {
        self.known.iter_mut().for_each(|class| class.present = false);
        for policy in classes {
            match self.known.iter_mut().find(|class| class.policy.name == policy.name) {
                Some(class) => *class = Class { policy, present: true },
                None => self.known.push(Class { policy, present: true }),
            }
        }
        self.default = default.and_then(|name| self.find(name));
    }

    /// What a request that names `class` is judged by.
    pub(crate) fn resolve(&self, class: Option<ClassId>) -> Option<ClassId> {
        class.filter(|class| self.present(*class).is_some()).or(self.default)
    }

    /// What a class entitles to; nothing where there is no such class.
    pub(crate) fn entitlement(&self, class: Option<ClassId>) -> Entitlement {
        class.and_then(|class| self.present(class)).map(|class| class.policy.entitlement).unwrap_or_default()
    }

    fn present(&self, class: ClassId) -> Option<&Class> {
        self.known.get(class.index()).filter(|class| class.present)
    }

    /// The name of a class, also of one that left the policy.
    pub(crate) fn name(&self, class: ClassId) -> Option<&str> {
        self.known.get(class.index()).map(|class| class.policy.name.as_str())
    }

    pub(crate) fn find(&self, name: &str) -> Option<ClassId> {
        let at = self.known.iter().position(|class| class.present && class.policy.name == name)?;
        u32::try_from(at).ok().map(ClassId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_keeps_its_index_by_name_and_the_default_stands_in_for_one_that_left() {
        let named = |name: &str| ClassPolicy { name: name.to_owned(), ..ClassPolicy::default() };
        let mut classes = Classes::default();
        classes.obey(vec![named("a"), named("b")], None);
        let (a, b) = (classes.find("a"), classes.find("b"));
        classes.obey(vec![named("b"), named("c")], Some("c"));
        assert_eq!(classes.find("b"), b);
        assert_eq!(classes.resolve(b), b);
        assert_eq!(classes.resolve(a), classes.find("c"));
        assert_eq!(classes.resolve(None), classes.find("c"));
    }
}
