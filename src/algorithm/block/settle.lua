-- A block is not corrected.
settles[KIND] = function()
end
