"""Pure maths: arrays in, arrays out; nothing here knows a party."""
