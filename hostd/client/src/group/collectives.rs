//! The calls that a member makes.

use super::call::Collective;
use super::failure::GroupError;
use super::member::Group;
use super::request::Request;
use super::vector::Vector;
use reduce::{Element, Operation};

impl Group {
    /// Begins a collective. [`Request`] carries it on when it is polled or waited for.
    ///
    /// # Errors
    /// [`GroupError::Argument`]: there is no such collective, or no such memory. Nothing was sent.
    /// Or the group has failed.
    pub fn start<'a>(
        &'a mut self,
        collective: Collective,
        vector: Vector<'a>,
    ) -> Result<Request<'a>, GroupError> {
        Request::begin(self, collective, Some(vector))
    }

    /// Gives each member what comes of the vectors of all.
    ///
    /// # Errors
    /// [`GroupError::Argument`]; or the group has failed.
    pub fn allreduce(
        &mut self,
        operation: Operation,
        element: Element,
        vector: Vector<'_>,
    ) -> Result<(), GroupError> {
        let collective = Collective::Allreduce(operation, element);
        Request::begin(self, collective, Some(vector))?.wait()
    }

    /// Gives `root` what comes of the vectors of all. Those of the others are scratch.
    ///
    /// # Errors
    /// [`GroupError::Argument`]; or the group has failed.
    pub fn reduce(
        &mut self,
        operation: Operation,
        element: Element,
        root: usize,
        vector: Vector<'_>,
    ) -> Result<(), GroupError> {
        let collective = Collective::Reduce {
            operation,
            element,
            root,
        };
        Request::begin(self, collective, Some(vector))?.wait()
    }

    /// Gives each member the bytes of `root`.
    ///
    /// # Errors
    /// [`GroupError::Argument`]; or the group has failed.
    pub fn broadcast(&mut self, root: usize, vector: Vector<'_>) -> Result<(), GroupError> {
        let collective = Collective::Broadcast { root };
        Request::begin(self, collective, Some(vector))?.wait()
    }

    /// Waits until all members have called it.
    ///
    /// # Errors
    /// The group has failed.
    pub fn barrier(&mut self) -> Result<(), GroupError> {
        Request::begin(self, Collective::Barrier, None)?.wait()
    }

    /// Gives each member the blocks of all: the vector has as many equal ones as there are members.
    ///
    /// # Errors
    /// [`GroupError::Argument`]; or the group has failed.
    pub fn allgather(&mut self, vector: Vector<'_>) -> Result<(), GroupError> {
        Request::begin(self, Collective::Allgather, Some(vector))?.wait()
    }

    /// Gives each member its block of what comes of the vectors of all. The other blocks are
    /// scratch.
    ///
    /// # Errors
    /// [`GroupError::Argument`]; or the group has failed.
    pub fn reduce_scatter(
        &mut self,
        operation: Operation,
        element: Element,
        vector: Vector<'_>,
    ) -> Result<(), GroupError> {
        let collective = Collective::ReduceScatter(operation, element);
        Request::begin(self, collective, Some(vector))?.wait()
    }
}
