-- Decides calls about token buckets that start full, each call about one key. These are the commonest requests by far,
-- so nothing is built for a key but the bytes that are written; the driver would decide the same.
--
-- KEYS: where the states lie. ARGV[1]: a request, numbers in MessagePack one behind the other,
--   second, micros, the index of the first run, rules, runs
-- with the time that was given, or -1 as its second for the server's clock; of each rule the gain of a microsecond, the
-- price of a token, the burst and the tokens that it keeps free; and of each run of equal calls the key, the index of the rule, the cost, and how many
-- calls they are. Runs on one key are neighbours.
--
-- Answers, in a byte each, the number of values that could not be read, and for each key that of the calls that were admitted;
-- for each key the state that was found, as long as all states that are written here, or zeros; as text the second and
-- microsecond, and for each key to which something was refunded its key index, beginning with 1, how many microseconds, and
-- when the last charge that was moved by it has passed; and in a line of its own why nothing could be written, if that is so.
-- include bounds
-- include buckets/form

-- include keys
local plan = { cmsgpack.unpack(ARGV[1]) }
local call, put = redis.call, redis.pcall
local second, micros, run = plan[1], plan[2], plan[3]
-- include buckets/clock

local healed, counts, texts, moved, failure = 0, {}, {}, '', ''
-- A value of another type is missing here; the write finds it.
local values = ARGV[2] and {} or call('MGET', unpack(KEYS))
for n = #values + 1, #KEYS do
  -- Keys that are not declared are read one by one.
  local bytes = put('GET', KEYS[n])
  values[n] = type(bytes) == 'string' and bytes
end
local key = plan[run]
while key do
  local name, bytes, index, admitted = KEYS[key], values[key], key, 0
  -- include buckets/read

  repeat
    local rule, cost, calls = plan[run + 1], plan[run + 2], plan[run + 3]
    local gain, price, burst, kept = plan[rule], plan[rule + 1], plan[rule + 2], plan[rule + 3]
    -- include buckets/step
    run = run + 4
  until plan[run] ~= key

  -- include buckets/write
  values[key], counts[key] = found, admitted
  key = plan[run]
end

return string.char(healed, unpack(counts)) .. table.concat(values) .. second .. ' ' .. micros .. moved .. failure
