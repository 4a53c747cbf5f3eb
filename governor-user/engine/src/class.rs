//! Classes (plans) by index, stable by name. Knows no org and no key.

use crate::engine::Engine;
use crate::id::ClassId;
use crate::policy::ClassPolicy;

/// The classes there are and were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    /// By index; one that left the policy stays, so that an index never means something else.
    known: Vec<Class>,
}

#[derive(Clone, Debug)]
struct Class {
    policy: ClassPolicy,
    /// In the policy now.
    present: bool,
}

impl Classes {
    /// Takes new classes.
    pub(crate) fn obey(&mut self, classes: Vec<ClassPolicy>) {
        self.known.iter_mut().for_each(|class| class.present = false);
        for policy in classes {
            match self.known.iter_mut().find(|class| class.policy.name == policy.name) {
                Some(class) => *class = Class { policy, present: true },
                None => self.known.push(Class { policy, present: true }),
            }
        }
    }

    fn find(&self, name: &str) -> Option<ClassId> {
        let at = self.known.iter().position(|class| class.present && class.policy.name == name)?;
        u32::try_from(at).ok().map(ClassId)
    }
}

impl Engine {
    /// The class of this name.
    #[must_use]
    pub fn class_id(&self, name: &str) -> Option<ClassId> {
        self.classes.find(name)
    }

    /// The name of a class, also of one that left the policy.
    #[must_use]
    pub fn class_name(&self, class: ClassId) -> Option<&str> {
        self.classes.known.get(class.index()).map(|class| class.policy.name.as_str())
    }
}
