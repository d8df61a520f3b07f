//! What is known: the stores, the leader's state, and which keys are due. Changes go in, keys come out; nothing here
//! knows a client or waits.

pub mod handlers;
pub mod leader_state;
pub mod pace;
pub mod queues;
