"""Trust on the workstation: create and change policies, and sign bundles. The runner verifies them."""
