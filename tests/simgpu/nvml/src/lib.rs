//! libnvidia-ml.so.1 over the simulated GPU.
