-- Returns who holds a lock, without changing anything: {what is left of its time in ms, 0 if it is free;
-- the token, '' if unknown}.

-- include legacy.lua
if odd then return odd end
if not till or passed then return {0, ''} end
return {left, stamp == value and owner or ''}
