"""Forms of SQL that are not simply the call of a function, with holes."""

#: Expressions of one row. A hole in braces names the type of an expression. `?`: any type; `=`: the same type as
#: before; `T`: a date or time; `A`: an array; `S`: a struct; `to`: the name of a type; `part`: the part of a time.
FORMS = """
{?} + {=}
{?} - {=}
{?} * {=}
{?} / {=}
{int} % {int}
{bigint} div {int}
-{?}
~{int}
{int} & {int}
{int} ^ {int}
{?} = {=}
{?} <=> {=}
{?} < {=}
{?} >= {?}
{T} > {string}
{?} <> {=}
{T} = {T}
{?} IN ({=}, {=})
{T} IN ({string}, {string})
{?} BETWEEN {=} AND {=}
{T} NOT BETWEEN {string} AND {string}
{boolean} AND {boolean}
{boolean} OR {boolean}
NOT {boolean}
{string} LIKE {string}
{string} ILIKE {string}
{string} RLIKE {string}
{string} LIKE ANY ({string}, {string})
{string} || {?}
{?} IS NULL
{?} IS NOT NULL
{?} IS DISTINCT FROM {=}
{boolean} IS TRUE
isnan({double})
CASE WHEN {boolean} THEN {?} ELSE {=} END
CASE {?} WHEN {=} THEN {?} END
IF({boolean}, {?}, {=})
coalesce({?}, {=}, {=})
CASE WHEN {boolean} THEN {T} ELSE {string} END
coalesce({T}, {string})
nvl({string}, {T})
array({T}, {string})[1]
CAST({?} AS {to})
TRY_CAST({?} AS {to})
({?})::{to}
CAST({string} AS {to})
TRY_CAST({string} AS {to})
CAST({time} AS {to})
CAST(CAST({?} AS {to}) AS {to})
TRY_CAST({string} AS {to})
CAST({T} AS {to})
CAST(array({string}) AS array<{to}>)
EXTRACT({part} FROM {T})
{T} + {interval day to second}
{T} - {T}
{date} + {int}
{T} + {interval year to month}
{T} - {interval}
{T} AT TIME ZONE {string}
date_trunc({string}, {T})
timestampadd({part}, {int}, {T})
timestampdiff({part}, {T}, {T})
{A}[{int}]
{map<string,int>}[{string}]
{S}.x
{S}.k
struct({?}, {?})
named_struct('p', {?}, 'x', {?})
array({?}, {=})
map({string}, {?})
substring({string} FROM {int} FOR {int})
trim(BOTH {string} FROM {string})
position({string} IN {string})
overlay({string} PLACING {string} FROM {int})
transform({A}, x -> x)
transform({A}, (x, i) -> struct(x, i))
filter({A}, x -> x IS NOT NULL)
exists({A}, x -> x = {?})
forall({A}, x -> x > {?})
transform({array<string>}, x -> concat(x, {string}))
transform({array<double>}, x -> x + {double})
transform({A}, x -> {?})
aggregate({array<double>}, 0D, (p, x) -> p + x)
aggregate({array<int>}, {int}, (p, x) -> p + x, p -> p * 2)
reduce({A}, {?}, (p, x) -> p)
array_sort({A}, (x, y) -> CASE WHEN x < y THEN 1 WHEN x > y THEN -1 ELSE 0 END)
zip_with({A}, {A}, (x, y) -> struct(x, y))
map_filter({map<string,int>}, (k, x) -> x > {int})
transform_values({map<string,double>}, (k, x) -> x + {double})
transform_keys({map<string,int>}, (k, x) -> upper(k))
map_zip_with({map<string,int>}, {map<string,int>}, (k, x, y) -> struct(x, y))
array_max(transform({A}, x -> x))
sort_array({A}, {boolean})
{string} COLLATE UTF8_LCASE
{string} COLLATE UNICODE_CI
collate({string}, 'UNICODE_AI') = {string}
max_by({?}, {?}) FILTER (WHERE {boolean})
{variant}:a
{variant}:b[0]::int
{string}:a
from_json({string}, 'a INT, b ARRAY<INT>')
to_json(struct({?}, {?}))
from_csv({string}, 'x INT, y DATE')
from_json({string}, 'a TIMESTAMP')
from_csv({string}, 'x TIMESTAMP')
from_csv({string}, 'x DATE', map('dateFormat', {string}))
schema_of_json({string})
date_format({T}, {string})
to_timestamp({string}, {string})
to_date({string}, {string})
unix_timestamp({string}, {string})
from_utc_timestamp({T}, {string})
hash({?}, {?})
xxhash64({?}, {?})
to_char({m}, '999.99')
typeof({?})
sequence({date}, {date}, INTERVAL 1 DAY)
to_variant_object({S})
{?}::variant
(SELECT max({?}) FROM VALUES (1), (2) AS v(one))
(SELECT {?})
EXISTS(SELECT 1 WHERE {T} > {string})
{?} IN (SELECT {=})
window({T}, '1 day').start
""".strip().splitlines()
#: Expressions of many rows.
AGGREGATES = """
count(*)
count(DISTINCT {?})
sum(DISTINCT {?})
avg(DISTINCT {?})
count(DISTINCT {?}, {?})
sum({?}) FILTER (WHERE {boolean})
max(struct({?}, {?}))
max({?}) FILTER (WHERE {?} = {=})
listagg({string}, ',') WITHIN GROUP (ORDER BY {string})
listagg(DISTINCT {string})
percentile_cont(0.5) WITHIN GROUP (ORDER BY {?})
percentile_disc(0.3) WITHIN GROUP (ORDER BY {?} DESC)
mode() WITHIN GROUP (ORDER BY {?})
first({?}) IGNORE NULLS
any_value({?}, true)
max({?}) + min({=})
collect_set({?})
sort_array(collect_list({?}))
sort_array(collect_set({?}))
size(collect_set({?}))
array_sort(collect_list({?}))
size(collect_list({?}))
array_max(collect_list({?}))
array_distinct(collect_list({?}))
max_by({?}, struct({?}, id))
max_by({?}, id)
min_by(struct({?}, {?}), id)
mode({?}, true)
map_from_entries(collect_list(struct(id, {?})))
approx_percentile({?}, 0.5)
approx_percentile({?}, array(0.1, 0.9), 100)
histogram_numeric({?}, 3)
min({A})
count({?}) * 2
sum({?}) / count(*)
round(sum({double}), 2)
CAST(sum({double}) AS DECIMAL(10, 2))
bool_or({boolean})
max({T}) > {string}
sum(CAST({?} AS DECIMAL(20, 4)))
array_agg({?})
max(array({?}))
min(collate({string}, 'UTF8_LCASE'))
max(upper({string}))
sum({interval day to second})
avg({interval year to month})
try_avg({?})
""".strip().splitlines()
