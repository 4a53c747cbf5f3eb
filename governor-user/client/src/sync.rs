//! The primitives that threads share the connection with: the standard library's and tokio's, or, under `--cfg shuttle`,
//! those of a model that tries many interleavings. Decides nothing.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(crate) use tokio::sync::Notify;

#[cfg(shuttle)]
pub(crate) use self::model::Notify;
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

#[cfg(shuttle)]
mod model {
    //! A notification with one stored permit, as tokio's, for threads of the model.

    use shuttle::sync::{Condvar, Mutex, MutexGuard};

    #[derive(Default)]
    pub(crate) struct Notify {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Default)]
    struct State {
        permit: bool,
        is_waiting: bool,
    }

    impl Notify {
        pub(crate) fn notify_one(&self) {
            self.state().permit = true;
            self.changed.notify_one();
        }

        pub(crate) async fn notified(&self) {
            self.wait();
        }

        /// Waits for the permit and takes it.
        pub(crate) fn wait(&self) {
            let mut state = self.state();
            state.is_waiting = true;
            while !state.permit {
                state = self.changed.wait(state).expect("no thread of the model panics with it");
            }
            *state = State::default();
        }

        /// A thread waits, and nothing has been done that wakes it.
        pub(crate) fn is_idle(&self) -> bool {
            let state = self.state();
            state.is_waiting && !state.permit
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.state.lock().expect("no thread of the model panics with it")
        }
    }
}
