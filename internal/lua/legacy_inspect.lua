-- Returns who holds a lock, without changing anything, as inspect.lua does: {the token, '' if it is unknown, or false if the lock is
-- free; {}; what is left of its time in ms; 0}.

-- include legacy.lua
if odd then return odd end
if not till or passed then return {false, {}, 0, 0} end
return {stamp == value and owner or '', {}, left, 0}
