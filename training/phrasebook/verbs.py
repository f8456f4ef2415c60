"""The verbs, with the clauses they occur in and the objects or places that make sense with them.

A row is English (with an irregular past) | French infinitive | Chinese | uses | objects; another
Chinese verb may hold for some objects, as in `穿,戴:worn`. The uses are the tenses and two more:

    c  is eating        p  ate           f  will eat      w  wants to eat
    n  can eat          h  eats, of a habit               s  likes, of a state
    q  what is she eating?                                o  she is helping him
"""

from dataclasses import dataclass
from functools import cache

from training.phrasebook.nouns import Noun, select

TENSES = "cpfwnhs"

TRANSITIVE = """
eat/ate | manger | 吃 | cpfwnhq | food
drink/drank | boire | 喝 | cpfwnhq | drink
buy/bought | acheter | 买 | cpfwnhq | food drink clothes worn text thing device instrument \
furniture fixture vehicle -plane -train house horse cow
sell/sold | vendre | 卖 | cpfwnhq | food drink clothes worn text thing device instrument \
furniture fixture vehicle house farm farmed -letter
prepare | préparer | 准备 | cpfwhq | dish soup chicken meat rice coffee tea
cut/cut | couper | 切 | cpfwnq | fruit vegetable -cherry dish -egg bread meat cheese chicken
wash | laver | 洗 | cpfwnhq | fruit vegetable clothes hat scarf glove tableware -bottle towel \
blanket car truck bicycle dog
order | commander | 点 | pfwhq | dish -egg drink -milk soup chicken rice
choose/chose | choisir | 挑选 | cpfwq | clothes worn text -letter gift flower device furniture \
toy cake
look+for | chercher | 找 | cpfqo | thing -flower text jewel phone pet hotel restaurant bank
find/found | trouver | 找到 | pfnq | thing -flower text jewel phone pet glove hat hotel \
restaurant
lose/lost | perdre | 弄丢 | pfq | key umbrella ticket photo map ball doll toy book letter pen \
jewel phone hat scarf glove bag suitcase
write/wrote | écrire | 写 | cpfwnhq | letter novel poem book story song
read/read | lire | 读 | cpfwnhq | text -dictionary story
translate | traduire | 翻译 | cpfwnhq | letter novel poem book story song word
open | ouvrir | 打开 | cpfwnq | opening container -basket bottle letter wardrobe fridge gift \
umbrella
close | fermer | 关上 | cpfwnq | opening box suitcase wardrobe fridge
wear/wore | porter | 穿,戴:worn | cpfwhq | clothes worn
bring/brought | apporter | 带来 | pfq | gift flower dish -egg fruit wine cheese bread \
chocolate book chair umbrella blanket guitar
take/took | prendre | 乘坐,乘:boat | cpfwnh | bus train plane boat
draw/drew | dessiner | 画 | cpfwnhq | animal tree flower house castle boat bridge
paint | peindre | 粉刷 | cpfwq | house school church kitchen bedroom hotel shop
build/built | construire | 建造 | cpfwnhq | building bridge
repair | réparer | 修理 | cpfwnhq | vehicle device fixture furniture instrument opening toy \
watch
break/broke | casser | 打碎 | pfq | glass plate cup bottle window mirror lamp egg
clean | nettoyer | 打扫 | cpfwnhq | house school church kitchen bedroom hotel restaurant shop \
garden station museum library
drive/drove | conduire | 驾驶 | cpfwnhq | car bus truck train
use | utiliser | 使用 | cpfwnhq | device -television tableware stationery dictionary map towel \
key
hide/hid | cacher | 藏 | cpfwq | key gift letter photo map ring watch doll toy bag box \
chocolate
visit | visiter | 参观 | cpfwnhq | museum castle church garden city village farm library \
theatre school
cross | traverser | 穿过 | cpfn | street forest park garden village city market
leave/left | quitter | 离开 | pfwn | house school hospital museum restaurant hotel castle \
station theatre library city village farm park market
see/saw | voir | 看见 | pfnqo | animal nature person vehicle building
watch/watched | regarder | 看 | cpfwq | film bird elephant lion boat train
listen+to | écouter | 听 | cpfwhq | song music story poem
hear/heard | entendre | 听见 | pfnqo | dog cat bird horse wolf cow lion train plane truck song \
music piano violin baby
wait+for | attendre | 等 | cpfqo | bus train boat plane person -baby letter answer
know/knew | connaître | 认识 | so | person -baby
respect | respecter | 尊敬 | so | kin king queen job -waiter
help | aider | 帮助 | cpfwnho | person -king -queen
invite | inviter | 邀请 | pfwno | person -king -queen -baby -man -woman
meet/met | rencontrer | 遇见 | pfo | person -baby -son -man -woman
kiss | embrasser | 亲吻 | cpfw | kin baby child dog cat horse
feed/fed | nourrir | 喂 | cpfwnh | pet farmed bird fish elephant lion baby
photograph | photographier | 拍摄 | cpfwnhq | animal nature castle church bridge city
learn | apprendre | 学 | cpfwhq | language song poem word
teach/taught | enseigner | 教 | cpfwnhq | language music
understand/understood | comprendre | 理解 | sq | question answer story word poem novel song
explain | expliquer | 解释 | cpfwnq | question answer story word poem
forget/forgot | oublier | 忘记 | pfq | question answer story word song
borrow | emprunter | 借 | cpfwnq | text -letter -newspaper car bicycle umbrella pen pencil \
guitar phone
steal/stole | voler | 偷 | cpfwq | jewel phone computer car bicycle bag suitcase painting \
gift horse
throw/threw | lancer | 扔 | cpfq | ball hat shoe bottle apple egg tomato toy
touch | toucher | 摸 | cpfwnq | pet horse cow snake elephant sheep mirror flower tree blanket
hold/held | tenir | 拿 | cq | ball key umbrella flower glass cup bottle text bag stationery \
knife spoon basket doll
fill | remplir | 装满 | cpfq | container bottle glass cup
plant | planter | 种 | cpfwnhq | tree flower tomato carrot onion
pick | cueillir | 摘 | cpfwhq | apple orange pear lemon peach strawberry cherry flower tomato
receive | recevoir | 收到 | pfq | letter gift newspaper photo flower ring answer book
protect | protéger | 保护 | cpfwnhqo | animal -mouse forest river city village child baby \
nature
decorate | décorer | 装饰 | cpfwhq | house garden cake tree bedroom shop restaurant hotel \
church
destroy | détruire | 摧毁 | pfq | castle bridge city village house forest station
like | aimer | 喜欢 | sqo | food drink animal clothes text flower music work sport city park
love | adorer | 爱 | sq | fruit cake chocolate cheese bread pizza coffee tea wine animal \
music sport
hate | détester | 讨厌 | sqo | vegetable meat soup chicken milk beer animal -pet sport \
hospital
prefer | préférer | 更喜欢 | sq | fruit dish staple drink music sport work text animal
have/had | avoir | 有 | s | clothes worn text -letter thing device instrument furniture \
vehicle -train -plane -bus animal -wild_animal house garden farm question
want/wanted | vouloir | 想要 | sq | dish fruit drink staple clothes worn text -letter thing \
device vehicle -train -plane -bus instrument pet horse garden
play | jouer_de | 弹,拉:violin | cpfwnh | instrument
play | jouer_à | 打,踢:football | cpfwnh | sport
"""

# Objects are places here, with the preposition that the place brings along.
INTRANSITIVE = """
sleep/slept | dormir | 睡觉 | cpfwnh | bedroom garden hotel kitchen train
work | travailler | 工作 | cpfwnh | farm hospital school bank shop restaurant hotel library \
museum theatre station garden
run/ran | courir | 跑步 | cpfwnh | park forest garden beach street
swim/swam | nager | 游泳 | cpfwnh | river lake
dance | danser | 跳舞 | cpfwnh | street kitchen park theatre garden
sing/sang | chanter | 唱歌 | cpfwnh | church theatre garden kitchen school park street
cry | pleurer | 哭 | cpf | bedroom kitchen garden street
laugh | rire | 笑 | cpf | kitchen street garden bedroom park
smile | sourire | 微笑 | cpf |
walk | marcher | 走路 | cpfwnh | park forest street beach garden
play | jouer | 玩 | cpfwnh | garden park street bedroom beach
travel/travelled | voyager | 旅行 | cpfwnh |
think/thought | réfléchir | 思考 | cpfwh | garden bedroom park
jump | sauter | 跳 | cpfwn | garden park street
study | étudier | 学习 | cpfwnh | library bedroom kitchen school garden
wait | attendre | 等待 | cpfwn | station street kitchen hospital restaurant park
dream/dreamt | rêver | 做梦 | cph |
"""

MOTION = """
go+to/went | aller | 去 | pfwnh | school hospital church museum restaurant hotel library bank \
castle station theatre park market farm beach
return+to | retourner | 回到 | pfwn | school hospital museum restaurant hotel library bank \
castle station park market farm beach
arrive+at | arriver | 到达 | pf | school hospital church museum restaurant hotel library \
castle station theatre park market farm beach
stay+at | rester | 留在 | pfwn | school hospital museum restaurant hotel library castle \
station farm
enter | entrer_dans | 进入 | pfwn | house school hospital church museum restaurant hotel shop \
library bank castle theatre kitchen bedroom garden park forest village city
"""


# Objects that somebody gets.
GIVING = """
give/gave | donner | 送给 | pfw | book flower ring watch gift doll toy cake cat dog guitar \
phone bicycle umbrella hat scarf photo painting key ticket
send/sent | envoyer | 寄给 | pfw | letter gift book photo map poem ticket newspaper
"""


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in the three languages; `particle` is the second English word, as in "look for".

    `tenses` are those of its uses that are tenses.
    """

    english: str
    english_past: str
    particle: str
    french: str
    chinese: str
    chinese_by_object: dict[str, str]
    tenses: str
    uses: str
    objects: tuple[Noun, ...]
    lemma: str


def english_past(verb: str) -> str:
    """The regular past."""
    if verb.endswith("e"):
        return verb + "d"
    if verb[-1] == "y" and verb[-2] not in "aeo":
        return verb[:-1] + "ied"
    return verb + "ed"


def _parse(table: str) -> dict[str, Verb]:
    """The verbs of a table by their French infinitive, which is unique."""
    result = {}
    for line in table.strip().splitlines():
        english, french, chinese, uses, objects = (part.strip() for part in line.split("|"))
        english, _, past = english.partition("/")
        base, _, particle = english.partition("+")
        chinese, *special = chinese.split(",")
        by_object = {}
        for rule in special:
            form, name = rule.split(":")
            by_object.update({noun.english: form for noun in select(name)})
        result[french] = Verb(
            english=base,
            english_past=past or english_past(base),
            particle=particle,
            french=french,
            chinese=chinese,
            chinese_by_object=by_object,
            tenses="".join(use for use in uses if use in TENSES),
            uses=uses,
            objects=tuple(select(objects)),
            lemma=english.replace("+", " "),
        )
    return result


@cache
def transitive() -> dict[str, Verb]:
    """The verbs with an object."""
    return _parse(TRANSITIVE)


@cache
def intransitive() -> dict[str, Verb]:
    """The verbs without one; `objects` are places."""
    return _parse(INTRANSITIVE)


@cache
def motion() -> dict[str, Verb]:
    """The verbs of going somewhere."""
    return _parse(MOTION)


@cache
def giving() -> dict[str, Verb]:
    """The verbs of giving something to somebody."""
    return _parse(GIVING)
