//! The service manager of an image: there is none, so every request succeeds and does nothing.

use crate::host::{HostError, Manager, Service, ServiceState};

/// No service manager: in an image, or before the agent's start, when nothing else may be started or stopped.
#[derive(Debug)]
pub struct NoService;

impl Service for NoService {
    fn manager(&self) -> Result<Manager, HostError> {
        Ok(Manager::Absent(Box::new(())))
    }

    fn is_enabled(&self) -> Result<bool, HostError> {
        Ok(false)
    }

    fn set_enabled(&self, _: bool) -> Result<(), HostError> {
        Ok(())
    }

    fn state(&self) -> Result<ServiceState, HostError> {
        Ok(ServiceState::Stopped)
    }

    fn reload(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn stop(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn start(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn refresh(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn set_updates(&self, _: bool) -> Result<(), HostError> {
        Ok(())
    }
}
