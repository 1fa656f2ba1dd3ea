"""Makes a KVM host so as a host file says, and puts it back.

`wanted` decides, pure: from a host and what was seen of a machine to the settings that are wanted,
or a refusal. `agent` runs on the machine, which may be another one, and sees, changes and puts
back. `place` brings the two together.
"""
