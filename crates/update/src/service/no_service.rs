use crate::host::{HostError, Service, ServiceState};

/// A service manager that is not there to be asked: before the network, or in an image.
#[derive(Debug)]
pub struct NoService;

impl Service for NoService {
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
