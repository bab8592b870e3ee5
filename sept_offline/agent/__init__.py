"""What is deployed: small networks that act, without torch, d3rlpy or a simulator."""
