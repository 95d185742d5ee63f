//! Warpmeter's metric catalogue, its Prometheus exposition and its HTTP endpoints.
