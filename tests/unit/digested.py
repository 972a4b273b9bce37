"""Functions whose digest tests look at, as texts; `«ONE|OTHER»` are two functions that differ in this."""

CASES = {
    "instructions": "def function(x):\n    return x «+|-» 1",
    "order of additions": "def function(a, b, c):\n    return «(a + b) + c|a + (b + c)»",
    "default": "def function(x, by=«1|2»):\n    return x + by",
    "named default": "def function(x, *, by=«1|2»):\n    return x + by",
    "closure": "def around(by):\n    return lambda x: x + by\nfunction = around(«1|2»)",
    "table": "TABLE = {'a': «1|2»}\ndef function(x):\n    return TABLE['a'] + x",
    "set": "ONES = {'p', 'q', '«r|s»'}\ndef function(x):\n    return x in ONES",
    "helper": "def helper(x):\n    return x + «1|2»\ndef function(x):\n    return [helper(y) for y in x]",
    "array": "import numpy as np\nA = np.array([1.0, «2.0|3.0»])\ndef function(x):\n    return A @ x",
    "array's type": "import numpy as np\nA = np.array([1, 2], '«i4|i8»')\ndef function(x):\n    return A @ x",
    "scalar": "import numpy as np\nBY = np.float64(«1.0|2.0»)\ndef function(x):\n    return x * BY",
    "frame": "import pandas as pd\nP = pd.DataFrame({'a': [1, «2|3»]})\ndef function(x):\n    return P.loc[x]",
    "decimal": "from decimal import Decimal\nBY = Decimal('«1.0|1.00»')\ndef function(x):\n    return x * BY",
    "date": "from datetime import date\nD = date(2020, 1, «1|2»)\ndef function(x):\n    return x > D",
    "time": "import datetime as d\nD = d.datetime(2020, 1, 1, tzinfo=d.timezone(d.timedelta(hours=«1|2»)))\n"
    "def function(x):\n    return x > D",
    "pattern": "import re\nP = re.compile('«a|b»+')\ndef function(x):\n    return P.match(x)",
    "pattern's flags": "import re\nP = re.compile('a', «0|re.I»)\ndef function(x):\n    return P.match(x)",
    "enum": "import enum\nclass E(enum.Enum):\n    A = «1|2»\ndef function(x):\n    return E.A.value + x",
    "enum's member": "import enum\nclass E(enum.IntEnum):\n    A = 1\n    B = 2\nM = E.«A|B»\n"
    "def function(x):\n    return M + x",
    "enum's method": "import enum\nclass E(enum.Enum):\n    A = 1\n    def of(self, x):\n        return x + «1|2»\n"
    "def function(x):\n    return E.A.of(x)",
    "dataclass": "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass D:\n    by: int\n"
    "D1 = D(by=«1|2»)\ndef function(x):\n    return D1.by + x",
    "dataclass's default": "from dataclasses import dataclass\n@dataclass\nclass D:\n    by: int = «1|2»\n"
    "def function(x):\n    return D().by + x",
    "named tuple": "from collections import namedtuple\nP = namedtuple('P', 'a b')\nQ = P(1, «2|3»)\n"
    "def function(x):\n    return Q.b + x",
    "plain object": "class O:\n    def __init__(self, by):\n        self.by = by\nO1 = O(«1|2»)\n"
    "def function(x):\n    return O1.by + x",
    "slots": "class O:\n    __slots__ = ('by',)\n    def __init__(self, by):\n        self.by = by\nO1 = O(«1|2»)\n"
    "def function(x):\n    return O1.by + x",
    "base class": "class B:\n    def of(self, x):\n        return x + «1|2»\nclass O(B):\n    pass\n"
    "def function(x):\n    return O().of(x)",
    "static method": "class O:\n    @staticmethod\n    def of(x):\n        return x + «1|2»\n"
    "def function(x):\n    return O.of(x)",
    "class method": "class O:\n    @classmethod\n    def of(cls, x):\n        return x + «1|2»\n"
    "def function(x):\n    return O.of(x)",
    "property": "class O:\n    @property\n    def by(self):\n        return «1|2»\n"
    "def function(x):\n    return O().by + x",
    "cached property": "import functools\nclass O:\n    @functools.cached_property\n    def by(self):\n"
    "        return «1|2»\ndef function(x):\n    return O().by + x",
    "callable object": "class O:\n    by = «1|2»\n    def __call__(self, x):\n"
    "        return x + self.by\nfunction = O()",
    "partial": "from functools import partial\ndef add(x, by):\n    return x + by\nfunction = partial(add, by=«1|2»)",
    "partial in a table": "from functools import partial\nT = [partial(int, base=«8|16»)]\n"
    "def function(x):\n    return T[0](x)",
    "bound method": "class O:\n    def __init__(self, by):\n        self.by = by\n    def add(self, x):\n"
    "        return x + self.by\nfunction = O(«1|2»).add",
    "bound method of C": "IN = {'a': «1|2»}.get\ndef function(x):\n    return IN(x)",
    "item": "from operator import itemgetter\nG = itemgetter(«1|2»)\ndef function(x):\n    return G(x)",
    "lru_cache": "import functools\n@functools.lru_cache\ndef add(x):\n    return x + «1|2»\n"
    "def function(x):\n    return add(x)",
    "wrapped": "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def again(x):\n        return f(f(x))\n"
    "    return again\n@twice\ndef function(x):\n    return x + «1|2»",
    "single dispatch": "import functools\n@functools.singledispatch\ndef function(x):\n    return x\n"
    "@function.register\ndef _(x: int):\n    return x + «1|2»",
    "function's attribute": "def function(x):\n    return function.by + x\nfunction.by = «1|2»",
    "vectorized": "import numpy as np\ndef one(x):\n    return x + «1|2»\nV = np.vectorize(one)\n"
    "def function(x):\n    return V(x)",
    "class in a function": "def function(x):\n    class O:\n        by = BY\n    return O.by + x\nBY = «1|2»",
    "library": "import math, cmath\ndef function(x):\n    return «math|cmath».sqrt(x)",
    "local import of a library": "def function(x):\n    from «math|cmath» import sqrt\n    return sqrt(x)",
    "drawn seed": "import numpy as np\nR = np.random.default_rng(«1|2»)\ndef function(x):\n    return R.random() + x",
    "zone": "from zoneinfo import ZoneInfo\nZ = ZoneInfo('Europe/«Berlin|Paris»')\ndef function(x):\n    return Z",
    "deque": "from collections import deque\nQ = deque([1, «2|3»])\ndef function(x):\n    return Q[1]",
    "a very long number": "N = 10**5000 + «1|2»\ndef function(x):\n    return N + x",
    "kind of number": "N = «1|True»\ndef function(x):\n    return N",
    "signs of zero": "N = «0.0|-0.0»\ndef function(x):\n    return N",
}  # fmt: skip

#: The ways in which a function uses parts of a user's module.
HELPERS = {
    "module": "import helpers\ndef function(x):\n    return helpers.compute(x)",
    "name of a module": "from helpers import compute\ndef function(x):\n    return compute(x)",
    "part of a package": "import apart.inner\ndef function(x):\n    return apart.inner.compute(x)",
    "package": "import apart\ndef function(x):\n    return apart.compute(x)",
    "local import": "def function(x):\n    import helpers\n    return helpers.compute(x)",
    "name of a local import": "def function(x):\n    from helpers import compute\n    return compute(x)",
    "local import of a part": "def function(x):\n    import apart.inner as i\n    return i.compute(x)",
    "module handed on": "import helpers\ndef run(m, x):\n    return m.compute(x)\ndef function(x):\n"
    "    return run(helpers, x)",
    "name that is looked up": "import helpers\ndef function(x):\n    return getattr(helpers, 'compute')(x)",
    "in a table": "import helpers\nT = {'c': helpers.compute}\ndef function(x):\n    return T['c'](x)",
    "in a class": "import helpers\nclass O:\n    def of(self, x):\n        return helpers.compute(x)\n"
    "def function(x):\n    return O().of(x)",
    "in a method's import": "class O:\n    def of(self, x):\n        from helpers import compute\n"
    "        return compute(x)\ndef function(x):\n    return O().of(x)",
}

#: Other values in programs: each has a digest, and the same one in each process.
OTHERS = {
    "values": "import uuid, fractions, pathlib, types\nV = [uuid.UUID(int=5), fractions.Fraction(1, 3), range(3),\n"
    "    slice(1), pathlib.Path('a'), complex(1, 2), bytearray(b'x'), object(), types.MappingProxyType({'a': 1})]\n"
    "def function(x):\n    return V",
    "tables": "from collections import ChainMap, Counter, OrderedDict, defaultdict\n"
    "V = [ChainMap({'a': 1}), OrderedDict(a=1), Counter('abc'), defaultdict(set, a={'p', 'q', 'r'})]\n"
    "def function(x):\n    return V",
    "arrays": "import numpy as np\nV = [np.array([('a', 1)], 'U3,i4'), np.array([{'a', 'b', 'c'}], 'O'), np.sin]\n"
    "V += [np.mean, np.ma.array([1, 2], mask=[0, 1]), np.datetime64('2020-01-01')]\ndef function(x):\n    return V",
    "frames": "import pandas as pd\nV = [pd.Series([1, 2], name='n'), pd.Categorical(['a', 'b']), pd.NA, pd.NaT,\n"
    "    pd.Timestamp('2020-01-01', tz='Europe/Berlin')]\ndef function(x):\n    return V",
    "Arrow": "import pyarrow as pa, pyarrow.compute as pc\nV = [pa.table({'a': ['x']}), pc.add]\n"
    "def function(x):\n    return V",
    "functions of C": "F = [len, str.upper, 'ab'.join, dict.fromkeys, int.__add__, (5).__add__]\n"
    "def function(x):\n    return F",
    "circle": "class N:\n    pass\na, b = N(), N()\na.o, b.o = b, a\n"
    "L = [a]\nL.append(L)\ndef function(x):\n    return L",
    "abstract class": "import abc\nfrom typing import Generic, Protocol, TypeVar\nT = TypeVar('T')\n"
    "class P(Protocol):\n    def of(self): ...\nclass B(abc.ABC, Generic[T]):\n    @abc.abstractmethod\n"
    "    def of(self): ...\nclass O(B[int], P):\n    def of(self):\n        return super().of()\n"
    "def function(x):\n    return O().of()",
    "flags": "import enum\nclass E(enum.Flag):\n    A = enum.auto()\n    B = enum.auto()\nX = E.A | E.B\n"
    "def function(x):\n    return X",
    "logger": "import logging, threading\nL, R = logging.getLogger('a'), threading.Condition()\n"
    "def function(x):\n    L.info(x)\n"
    "    with R:\n        return x",
    "said": "import falkirk as fk\nfunction = fk.deterministic(because='it is')(lambda x: x)",
    "said of C": "import falkirk as fk\nfunction = fk.deterministic(str.upper)",
}  # fmt: skip

#: Spark's pickle refuses these of a program's main file, or leaves out a name.
UNPICKLED = ("cached property", "single dispatch", "lru_cache", "class in a function", "logger")

#: Prints the digest of each case, with sets and modules in an order that is given, plainly and after
#: Spark's pickle.
PROGRAM = """
import json, sys
from pyspark import cloudpickle
from falkirk.steps.static_analysis.code import function_digest
from tests.unit.digested import CASES, HELPERS, OTHERS, UNPICKLED

number = int(sys.argv[1])
cases = {name: text for name, text in (CASES | HELPERS | OTHERS).items() if "apart" not in text}
words = ["p", "q", "r", "s", "t", "u"]
SETS = '''
class K:
    def __init__(self, n): self.n = n
    def __hash__(self): return id(self)
    def __eq__(self, other): return self is other
ONES = set(%r) | {(1, "a"), 2.5, None, frozenset(%r)} | {K(1), K(2), K(3)}
NAMES = {w: {w, "x"} for w in %r}
def function(x):
    return x in ONES or x in {"k", "l", "m"} or NAMES
'''
cases["sets"] = SETS % (words[number:] + words[:number], words[::-1] if number else words, words)
if number:  # others were looked at and pickled before, and modules imported
    import helpers
    cloudpickle.dumps(lambda x: helpers.compute(x) + number)
    function_digest(lambda x: [x, words, number])
found = {}
for name in sorted(cases, reverse=bool(number)):
    space = {"__name__": "__falkirk__"}
    text = cases[name]
    before, _, rest = text.partition("«")
    inner, _, after = rest.partition("»")
    exec(compile(before + inner.split("|")[0] + after, "program.py", "exec"), space)
    found[name] = function_digest(space["function"])
    if name not in UNPICKLED:
        again = cloudpickle.loads(cloudpickle.dumps(space["function"]))
        found["pickled " + name] = function_digest(again)
        assert found["pickled " + name] == found[name] or name in OTHERS, name
print(json.dumps(found))
"""
