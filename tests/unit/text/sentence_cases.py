"""Texts with their sentences: what a splitter is measured on, and what ours must get right.

In each text `|` stands where one sentence ends and the next begins; it is not part of the text.
"""

from __future__ import annotations

__all__ = ["CASES", "sentences_of", "text_of"]

CASES: tuple[tuple[str, str], ...] = (
    # Titles, abbreviations, initials.
    ("en", "Mr. Smith met Dr. Jones in St. Paul."),
    ("en", "Mrs. Brown left early.| Mr. Brown stayed."),
    ("en", "J. R. R. Tolkien wrote it.| C. S. Lewis read it."),
    ("en", "George W. Bush spoke first.| Then he left."),
    ("en", "The U.S. Army left.| The war was over."),
    ("en", "She lives in the U.S.| He lives in Canada."),
    ("en", "He works for Acme Inc. in Ohio.| She works for Smith & Co. in Leeds."),
    ("en", "It was founded by Brown Bros. in 1901."),
    ("en", "We need pens, paper, etc. for the course."),
    ("en", "We bought apples, pears, etc.| The shop was full."),
    ("en", "Bring fruit, e.g. apples or pears.| Nothing else, i.e. no bread."),
    ("en", "Jones et al. found the same."),
    ("en", "The meeting is on Mon. Jan. 5 at the Univ. of York."),
    ("en", "Gen. Lee met Col. Grant.| Lt. Dan was there too."),
    ("en", "It is approx. 5 km away.| The max. speed is 30."),
    ("en", "Martin Luther King Jr. was born in Atlanta.| He was a pastor."),
    ("en", "She has a Ph.D. in physics.| He has none."),
    ("en", "He left at 5 p.m. on Friday."),
    ("en", "He left at 5 p.m.| The door was open."),
    ("en", "At 9 a.m. Tom woke up.| It was late."),
    ("en", "Vitamin C is good.| So is vitamin D."),
    ("en", "It was plan B.| We had no other."),
    ("en", "That is what I said, and so did I.| Nobody listened."),
    ("en", "The play is by Henry V.| No, about him."),
    # Numbers.
    ("en", "It costs 3.50 dollars.| That is not much."),
    ("en", "Version 2.0.1 is out.| Version 3 will follow."),
    ("en", "See Fig. 3 and No. 5 for details.| See p. 55, too."),
    ("en", "The year was 1990.| Everything changed."),
    ("en", "He counted 1, 2, 3.| Then he ran."),
    ("en", "The value fell by .5 percent.| It rose again."),
    ("en", "No.| I will not."),
    ("en", "She was no. 1 in the list.| He was no. 2."),
    # Questions, exclamations, ellipses.
    ("en", "Really?| Yes!| Good."),
    ("en", "What?!| Never again."),
    ("en", "Stop!!!| You will fall."),
    ("en", "Well... maybe not.| Perhaps."),
    ("en", "I waited…| Nobody came."),
    ("en", "I waited. . . .| Nobody came."),
    ("en", "She turned away ... and left."),
    ("en", "Yahoo! is a company.| So is Google."),
    # Quotations and brackets.
    ("en", "“Why?” he asked.| “Because.”"),
    ("en", '"Stop!" she cried, and ran.| He followed.'),
    ("en", "“I know.”| She smiled."),
    ("en", '"I know."| "So do I."'),
    ("en", "He said (quietly.)| Then he left."),
    ("en", "He left (it was late).| She stayed."),
    ("en", "He left. (It was late.)| She stayed.".replace("left. ", "left.| ")),
    ("en", "She said, 'I am tired.'| Then she slept."),
    ("en", "The sign (do not enter!) was red.| We went in."),
    ("en", '"It rained," he said. "We left."'.replace("said. ", "said.| ")),
    # Addresses and file names.
    ("en", "Visit www.example.com or write to a.b@c.org today.| It is free."),
    ("en", "See https://example.org/a.b?c=d.| It is long."),
    ("en", "Open config.yaml and main.py.| Then run it."),
    ("en", "Use Node.js with ASP.NET.| Both work."),
    # Lists and lines.
    ("en", "1. Open the door.| 2. Close the door."),
    ("en", "a) Read it.| b) Sign it."),
    ("en", "Title|\nA line.| And more.|\n\nAnother paragraph."),
    ("en", "• Milk|\n• Bread|\n• Eggs"),
    # Names of things that begin in lower case.
    ("en", "I have an iPhone.| iPads are larger."),
    # German.
    ("de", "Dr. Müller kommt um 5 Uhr.| Er bleibt bis 7."),
    ("de", "Das kostet z.B. drei Euro.| Nicht mehr."),
    ("de", "Das kostet z. B. drei Euro.| Nicht mehr."),
    ("de", "Am 3. Mai war er da.| Er ging 1990.| Dann kam der 2. Band."),
    ("de", "Wir wohnen in der Hauptstr. 5 bzw. am Platz.| Dort ist es schön."),
    ("de", "Herr Prof. Dr. Meier ist u. a. Arzt.| Er arbeitet viel."),
    ("de", "„Warum?“, fragte er.| „Darum.“"),
    ("de", "„Ich weiß.“| Sie lächelte."),
    ("de", "Im 19. Jahrhundert war das anders.| Heute nicht."),
    ("de", "Das sind ca. 5 Mio. Euro.| Viel Geld."),
    ("de", "Sie kam 1990.| Er kam später."),
    ("de", "Brot, Milch usw. sind teuer.| Alles ist teuer."),
    # French, Spanish, Italian, Portuguese, Dutch.
    ("fr", "M. Dupont arrive.| Mme Durand part."),
    ("fr", "Qu'est-ce que c'est ?| C'est un livre."),
    ("fr", "« Pourquoi ? » demanda-t-il.| Elle rit."),
    ("fr", "Voir p. 5 et chap. 3.| C'est tout."),
    ("fr", "Il a dit : « Je pars. »| Elle est restée."),
    ("es", "¿Qué hora es?| ¡No lo sé!"),
    ("es", "El Sr. López y la Sra. Ruiz viven aquí.| Son vecinos."),
    ("es", "Los EE. UU. ganaron.| México perdió."),
    ("it", "Il sig. Rossi è qui.| La dott. Bianchi no."),
    ("it", "Perché?| Non lo so."),
    ("pt", "O Sr. Silva chegou.| A Sra. Costa saiu."),
    ("nl", "Mevr. de Vries is er.| Dhr. Jansen niet."),
    ("nl", "Dat is bijv. een huis.| Mooi."),
    # Slavic, Nordic, Turkish, Greek.
    ("ru", "Он живёт на ул. Ленина.| Она живёт рядом."),
    ("ru", "А. С. Пушкин родился в 1799 г. в Москве.| Он был поэтом."),
    ("ru", "Это стоит 5 тыс. рублей.| Дорого."),
    ("ru", "«Почему?» — спросил он.| Она молчала."),
    ("pl", "Prof. Kowalski mieszka przy ul. Długiej.| Jest lekarzem."),
    ("pl", "Urodził się 3. maja.| Zmarł w 1990 r."),
    ("cs", "Narodil se 5. května.| Zemřel v Praze."),
    ("da", "Han kom den 3. Maj.| Hun gik."),
    ("fi", "Hän syntyi 3. toukokuuta.| Hän asuu täällä."),
    ("tr", "Dr. Yılmaz geldi.| Ali Bey gitti."),
    ("el", "Πού είναι;| Δεν ξέρω."),
    ("el", "Τι ώρα είναι;| Είναι πέντε.| Καλά."),
    # Other scripts with spaces.
    ("ar", "هل أنت هنا؟| نعم.| شكرا!"),
    ("fa", "آیا او اینجاست؟| بله."),
    ("ur", "وہ یہاں ہے۔| وہ گھر ہے۔"),
    ("hi", "यह घर है।| वह पेड़ है।| क्या यह सच है?"),
    ("bn", "এটা একটা বই।| ওটা একটা কলম।"),
    ("hy", "Սա տուն է։| Դա ծառ է։"),
    ("am", "ይህ ቤት ነው።| ያ ዛፍ ነው።"),
    ("my", "သူလာသည်။| သူသွားသည်။"),
    ("km", "គាត់មក។| គាត់ទៅ។"),
    ("he", "מה השעה?| אני לא יודע."),
    ("ko", "지금 몇 시입니까?| 다섯 시입니다.| 감사합니다!"),
    # Without spaces.
    ("zh", "你好！|你是谁？|我不知道。"),
    ("zh", "他说：“我走了。”|她哭了。"),
    ("zh", "他问：“为什么？”她没有回答。|天黑了。"),
    ("zh", "他走了。|“《论语》在哪儿？”|我不知道。"),
    ("zh", "价格是3.5元。|很便宜。"),
    ("zh", "真的吗？！|太好了……|我们走吧。"),
    ("zh", "今天下雨；我们不去了。|明天再说。"),
    ("ja", "今日は雨です。|明日は晴れます。"),
    ("ja", "「そう？」と彼は言った。|彼女は笑った。"),
    ("ja", "「分かりました。」|彼は帰った。"),
    ("ja", "本当ですか?|はい!|そうです。"),
    ("ja", "彼は「行きます。」と言った。|そして出た。"),
    ("ja", "価格は3.5円です。|安いですね｡|買います。"),
    ("th", "เขามาแล้ว| เธอไปแล้ว"),
    ("th", "คุณชื่ออะไร?| ผมชื่อสมชาย"),
)


def text_of(marked: str) -> str:
    """The text itself."""
    return marked.replace("|", "")


def sentences_of(marked: str) -> list[str]:
    """Its sentences, without the white space around them."""
    return [sentence.strip() for sentence in marked.split("|")]
