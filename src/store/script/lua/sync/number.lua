-- Records the `number` of a `node` in the `list` of a key. `is_new` is true if the key did not have it.
local is_new = true
for n = 2, #list - 1, 2 do
  if list[n] == node then
    is_new = list[n + 1] < number
    if is_new then
      table.remove(list, n)
      table.remove(list, n)
    end
    break
  end
end
if is_new then
  if #list >= 2 * MOST_MARKS then
    table.remove(list, 2)
    table.remove(list, 2)
  end
  list[#list + 1] = node
  list[#list + 1] = number
end
