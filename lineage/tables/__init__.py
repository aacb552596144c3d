"""Table operations that move rows between tasks, written once and run by an engine: workers here, or a cluster."""
