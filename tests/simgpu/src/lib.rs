//! A simulated GPU node: the device model behind the simulated NVML and CUDA driver libraries.
