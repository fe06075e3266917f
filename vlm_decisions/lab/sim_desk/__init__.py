"""Training of the embedded model, sim_desk, on the simulated desk."""
