"""The verbs, with the clauses they occur in and the objects or places that make sense with them.

A row is English (with an irregular past) | French infinitive | Chinese | tenses | objects; a Chinese
verb may change with its object, as in `穿,戴:worn`. The tenses are

    c  is eating        p  ate           f  will eat      w  wants to eat
    n  can eat          h  eats, of a habit               s  likes, of a state
"""

from dataclasses import dataclass
from functools import cache

from training.phrasebook.nouns import Noun, select

TRANSITIVE = """
eat/ate | manger | 吃 | cpfwnh | food
drink/drank | boire | 喝 | cpfwnh | drink
buy/bought | acheter | 买 | cpfwnh | food drink clothes worn text thing device instrument \
furniture fixture vehicle -plane -train house horse cow
sell/sold | vendre | 卖 | cpfwnh | food drink clothes worn text thing device instrument furniture \
fixture vehicle house farm farmed -letter
prepare | préparer | 准备 | cpfwh | dish soup chicken meat rice coffee tea
cut/cut | couper | 切 | cpfwn | fruit vegetable -cherry dish -cookie -egg bread meat cheese chicken
wash | laver | 洗 | cpfwnh | fruit vegetable clothes hat scarf glove tableware -bottle towel \
blanket car truck bicycle dog
taste | goûter | 品尝 | cpfw | fruit cake pizza sandwich staple drink -sugar -butter
order | commander | 点 | pfwh | dish -egg drink -milk soup chicken rice
choose/chose | choisir | 挑选 | cpfw | clothes worn text -letter gift flower device furniture \
game toy cake
look+for | chercher | 找 | cpf | thing -flower text jewel phone pet hotel restaurant bank
find/found | trouver | 找到 | pfn | thing -flower text jewel phone pet glove hat hotel restaurant
lose/lost | perdre | 弄丢 | pf | key umbrella ticket photo map ball doll toy book letter notebook \
pen jewel phone hat scarf glove bag suitcase
write/wrote | écrire | 写 | cpfwnh | letter novel poem book story song
read/read | lire | 读 | cpfwnh | text -dictionary story
translate | traduire | 翻译 | cpfwnh | letter novel poem book story song word
open | ouvrir | 打开 | cpfwn | opening container -basket bottle letter wardrobe fridge gift umbrella
close | fermer | 关上 | cpfwn | opening box suitcase wardrobe fridge
wear/wore | porter | 穿,戴:worn | cpfwh | clothes worn
bring/brought | apporter | 带来 | pf | gift flower dish -egg fruit wine cheese bread chocolate \
book chair umbrella blanket guitar
take/took | prendre | 乘坐 | cpfwnh | bus train plane boat
draw/drew | dessiner | 画 | cpfwnh | animal tree flower house castle boat bridge
paint | peindre | 粉刷 | cpfw | house school church kitchen bedroom hotel shop
build/built | construire | 建造 | cpfwnh | building bridge boat
repair | réparer | 修理 | cpfwnh | vehicle device fixture furniture instrument opening toy watch
break/broke | casser | 打碎 | pf | glass plate cup bottle window mirror lamp egg
clean | nettoyer | 打扫 | cpfwnh | house school church kitchen bedroom hotel restaurant shop \
garden station museum library
drive/drove | conduire | 驾驶 | cpfwnh | car bus truck train
use | utiliser | 使用 | cpfwnh | device -television tableware stationery dictionary map towel key
hide/hid | cacher | 藏 | cpfw | key gift letter photo map ring watch doll toy bag box chocolate
visit | visiter | 参观 | cpfwnh | museum castle church garden city village farm factory library \
theatre school
cross | traverser | 穿过 | cpfn | street forest park garden village city market
leave/left | quitter | 离开 | pfwn | house school hospital museum restaurant hotel castle station \
theatre cinema factory library city village island farm park market
see/saw | voir | 看见 | pfn | animal nature person vehicle building
watch/watched | regarder | 看 | cpfw | film game bird monkey elephant lion boat train
listen+to | écouter | 听 | cpfwh | song music story poem
hear/heard | entendre | 听见 | pfn | dog cat bird horse wolf cow lion train plane truck song music \
piano violin flute baby
wait+for | attendre | 等 | cpf | bus train boat plane person -baby letter answer
know/knew | connaître | 认识 | s | person -baby
respect | respecter | 尊敬 | s | kin king queen job -waiter
help | aider | 帮助 | cpfwnh | person -king -queen
invite | inviter | 邀请 | pfwn | person -king -queen -baby -man -woman
meet/met | rencontrer | 遇见 | pf | person -baby -son
thank | remercier | 感谢 | pf | kin job neighbour queen king
kiss | embrasser | 亲吻 | cpfw | kin baby child dog cat horse
feed/fed | nourrir | 喂 | cpfwnh | pet farmed bird fish elephant monkey lion baby
photograph | photographier | 拍摄 | cpfwnh | animal nature castle church bridge city
learn | apprendre | 学 | cpfwh | language song poem word game
teach/taught | enseigner | 教 | cpfwnh | language music
understand/understood | comprendre | 理解 | s | question answer story word poem novel song
explain | expliquer | 解释 | cpfwn | question answer story word poem game
forget/forgot | oublier | 忘记 | pf | question answer story word song
borrow | emprunter | 借 | cpfwn | text -letter -newspaper car bicycle umbrella pen pencil guitar phone
rent | louer | 租 | cpfwnh | house car boat bicycle motorcycle truck farm shop
steal/stole | voler | 偷 | cpfwh | jewel phone computer radio car bicycle motorcycle bag suitcase \
painting gift horse
throw/threw | lancer | 扔 | cpf | ball hat shoe bottle apple egg tomato toy
push | pousser | 推 | cpfn | car truck bicycle motorcycle chair table bed desk door
touch | toucher | 摸 | cpfwn | pet horse cow snake elephant sheep mirror flower tree blanket
hold/held | tenir | 拿 | c | ball key umbrella flower glass cup bottle text bag candle stationery \
knife spoon fork basket doll
fill | remplir | 装满 | cpf | container bottle glass cup
plant | planter | 种 | cpfwnh | tree flower tomato carrot onion cucumber
pick | cueillir | 摘 | cpfwh | apple orange pear lemon peach strawberry cherry flower tomato
collect | collectionner | 收集 | h | photo map doll watch painting book toy radio clock lamp ring
receive | recevoir | 收到 | pf | letter gift newspaper magazine photo flower ring answer book
admire | admirer | 欣赏 | cpfw | painting flower garden castle mountain lake photo bridge
burn | brûler | 烧 | cpf | letter photo newspaper magazine map ticket
protect | protéger | 保护 | cpfwnh | animal -mouse forest river city village child baby nature
describe | décrire | 描述 | cpfn | painting house castle city film village mountain photo
decorate | décorer | 装饰 | cpfwh | house garden cake tree bedroom shop restaurant hotel church
destroy | détruire | 摧毁 | pf | castle bridge city village house forest station factory
like | aimer | 喜欢 | s | food drink animal clothes text flower music work game sport city park
love | adorer | 爱 | s | fruit cake chocolate cheese bread pizza coffee tea wine animal music sport
hate | détester | 讨厌 | s | vegetable meat soup chicken milk beer animal -pet sport game hospital
prefer | préférer | 更喜欢 | s | fruit dish staple drink music sport work text animal
have/had | avoir | 有 | s | clothes worn text -letter thing device instrument furniture vehicle \
-train -plane -bus animal -wild_animal house garden farm question
want/wanted | vouloir | 想要 | s | dish fruit drink staple clothes worn text -letter thing device \
vehicle -train -plane -bus instrument pet horse garden
play | jouer_de | 弹,拉:violin,吹:flute | cpfwnh | instrument
play | jouer_à | 打,踢:football | cpfwnh | sport
"""

# Objects are places here, with the preposition that the place brings along.
INTRANSITIVE = """
sleep/slept | dormir | 睡觉 | cpfwnh | bedroom garden hotel kitchen train
work | travailler | 工作 | cpfwnh | farm factory hospital school bank shop restaurant hotel library \
museum theatre station garden
run/ran | courir | 跑步 | cpfwnh | park forest garden beach street
swim/swam | nager | 游泳 | cpfwnh | river lake
dance | danser | 跳舞 | cpfwnh | street kitchen park theatre garden
sing/sang | chanter | 唱歌 | cpfwnh | church theatre garden kitchen school park street
cry | pleurer | 哭 | cpf | bedroom kitchen garden street cinema
laugh | rire | 笑 | cpf | kitchen street cinema garden theatre school
smile | sourire | 微笑 | cpf |
walk | marcher | 走路 | cpfwnh | park forest street beach garden
play | jouer | 玩 | cpfwnh | garden park street bedroom beach school
travel | voyager | 旅行 | cpfwnh |
think/thought | réfléchir | 思考 | cpfwh | garden library bedroom
shout | crier | 喊叫 | cpfh | street garden station
jump | sauter | 跳 | cpfwn | garden park street
study | étudier | 学习 | cpfwnh | library bedroom kitchen school garden
wait | attendre | 等待 | cpfwn | station street kitchen hospital restaurant park
dream/dreamt | rêver | 做梦 | cph |
"""

MOTION = """
go+to/went | aller | 去 | pfwnh | school hospital church museum restaurant hotel library bank castle \
station theatre cinema factory park market farm beach
return+to | retourner | 回到 | pfwn | school hospital museum restaurant hotel library bank castle \
station factory park market farm beach
arrive+at | arriver | 到达 | pf | school hospital church museum restaurant hotel library castle \
station theatre cinema factory park market farm beach
stay+at | rester | 留在 | pfwn | school hospital museum restaurant hotel library castle station farm
enter | entrer_dans | 进入 | pfwn | house school hospital church museum restaurant hotel shop library \
bank castle theatre kitchen bedroom garden park forest village city
"""


# Objects that somebody gets.
GIVING = """
give/gave | donner | 送给 | pfw | book flower ring watch gift doll toy cake cat dog guitar phone \
bicycle umbrella hat scarf photo painting key ticket
send/sent | envoyer | 寄给 | pfw | letter gift book photo magazine map poem ticket newspaper
lend/lent | prêter | 借给 | pfw | book car bicycle umbrella pen pencil phone computer guitar \
dictionary coat jacket
"""


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in the three languages; `particle` is the second English word, as in "look for"."""

    english: str
    english_past: str
    particle: str
    french: str
    chinese: str
    chinese_by_object: dict[str, str]
    tenses: str
    objects: tuple[Noun, ...]
    lemma: str


def english_past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb[-1] == "y" and verb[-2] not in "aeo":
        return verb[:-1] + "ied"
    return verb + "ed"


def _parse(table: str) -> dict[str, Verb]:
    """The verbs of a table by their French infinitive, which is unique."""
    result = {}
    for line in table.strip().splitlines():
        english, french, chinese, tenses, objects = (part.strip() for part in line.split("|"))
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
            tenses=tenses,
            objects=tuple(select(objects)),
            lemma=english.replace("+", " "),
        )
    return result


@cache
def transitive() -> dict[str, Verb]:
    return _parse(TRANSITIVE)


@cache
def intransitive() -> dict[str, Verb]:
    return _parse(INTRANSITIVE)


@cache
def motion() -> dict[str, Verb]:
    return _parse(MOTION)


@cache
def giving() -> dict[str, Verb]:
    return _parse(GIVING)
