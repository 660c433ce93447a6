-- Where a slot moves to, only the first key may be declared: the others are arguments then.
for n = 2, #ARGV do
  KEYS[#KEYS + 1] = ARGV[n]
end
