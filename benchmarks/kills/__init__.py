"""Kill -9 at random moments: what a fleet's folder has then, and what the clients of a service see."""
