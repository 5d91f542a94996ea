"""The guards that ship. Each is a plain object, made from its options; none knows another."""
