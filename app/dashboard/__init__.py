"""The pages at `/ui`: rendered on the server over the control layer, useful without a script, live with one."""
